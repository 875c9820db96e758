package main

import (
	"bytes"
	"sort"
	"strconv"
	"sync"
	"syscall"
	"unsafe"
)

// placeholder is where an object's resourceVersion goes: whoever makes objects writes "0".
var placeholder = []byte(`"resourceVersion":"0"`)

// longest is how many events a table remembers; a watch from before is told that they are gone.
const longest = 20_000

// snapshots is how many lists that are read in pages a table keeps at once.
const snapshots = 16

type object struct {
	namespace, name string
	version         uint64
	data            []byte
}

type event struct {
	kind string // ADDED, MODIFIED
	object
}

type key struct{ namespace, name string }

// table holds the objects of one kind, what happened to them, and the lists that are being read.
type table struct {
	apiVersion, kind string
	items            map[key]*object
	events           []event
	compacted        uint64 // the newest version that events no longer tell of
	lists            map[uint64][]*object
	newest           uint64        // number of the newest list
	changed          chan struct{} // closed and replaced with every event
}

// cluster is what one API server holds. Versions are the cluster's, as with etcd.
type cluster struct {
	name     string
	mu       sync.Mutex
	version  uint64
	tables   map[string]*table // by path below /api and /apis, such as /api/v1/pods
	streamed bool              // lists may be asked for as a watch (WatchList)
	storm    bool              // every watch is told that its version is gone
	broken   chan struct{}     // closed while there is a storm
	lists    int               // first pages, and streamed lists
	watches  int
	open     int
}

func newCluster(name string, resources []resource) *cluster {
	c := &cluster{name: name, version: 1000, tables: map[string]*table{}, streamed: true, broken: make(chan struct{})}
	for _, r := range resources {
		c.tables[r.path] = &table{
			apiVersion: r.apiVersion, kind: r.kind, items: map[key]*object{}, lists: map[uint64][]*object{},
			changed: make(chan struct{}), compacted: c.version,
		}
	}
	return c
}

// put creates or changes an object and returns when: nanoseconds of CLOCK_MONOTONIC, Python's time.monotonic_ns().
func (c *cluster) put(path, namespace, name string, data []byte) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tables[path]
	c.version++
	version := append(strconv.AppendUint([]byte(`"resourceVersion":"`), c.version, 10), '"')
	o := &object{namespace, name, c.version, bytes.Replace(data, placeholder, version, 1)}
	what := "ADDED"
	if t.items[key{namespace, name}] != nil {
		what = "MODIFIED"
	}
	t.items[key{namespace, name}] = o
	t.events = append(t.events, event{what, *o})
	if len(t.events) > 2*longest {
		t.compacted = t.events[longest-1].version
		t.events = append([]event(nil), t.events[longest:]...)
	}
	now := monotonic()
	close(t.changed)
	t.changed = make(chan struct{})
	return now
}

// since returns the events after a version, and a channel that is closed with the next; false if they are gone.
func (c *cluster) since(t *table, version uint64) ([]event, <-chan struct{}, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version < t.compacted {
		return nil, nil, false
	}
	first := sort.Search(len(t.events), func(i int) bool { return t.events[i].version > version })
	return t.events[first:len(t.events):len(t.events)], t.changed, true
}

func (c *cluster) empty(t *table) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(t.items) == 0
}

// all returns the objects of a namespace ("": every one), sorted. mu is held.
func (c *cluster) all(t *table, namespace string) []*object {
	objects := make([]*object, 0, len(t.items))
	for _, o := range t.items {
		if namespace == "" || o.namespace == namespace {
			objects = append(objects, o)
		}
	}
	sort.Slice(objects, func(i, j int) bool {
		a, b := objects[i], objects[j]
		return a.namespace < b.namespace || a.namespace == b.namespace && a.name < b.name
	})
	return objects
}

// list begins a list: its objects, its number for continue tokens, its version.
func (c *cluster) list(t *table, namespace string) ([]*object, uint64, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists++
	t.newest++
	objects := c.all(t, namespace)
	t.lists[t.newest] = objects
	delete(t.lists, t.newest-snapshots)
	return objects, t.newest, c.version
}

// listed returns the objects of a list begun before, or nil if it has expired.
func (c *cluster) listed(t *table, number uint64) []*object {
	c.mu.Lock()
	defer c.mu.Unlock()
	return t.lists[number]
}

// expire forgets all lists that are being read: their continue tokens are answered with 410.
func (c *cluster) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tables {
		clear(t.lists)
	}
}

// weather begins or ends a storm, in which every watch is told that its version is gone.
func (c *cluster) weather(storm bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if storm && !c.storm {
		close(c.broken)
	} else if !storm && c.storm {
		c.broken = make(chan struct{})
	}
	c.storm = storm
}

func monotonic() int64 {
	var at syscall.Timespec
	const clockMonotonic = 1
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&at)), 0)
	return at.Nano()
}
