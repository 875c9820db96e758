package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"k8s.io/apimachinery/pkg/labels"
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
	data            []byte     // JSON
	encoded         []byte     // protobuf, where it is spoken
	message         message    // what encoded is made of
	labels          labels.Set // what selectors look at
	fields          labels.Set
}

// parsed is an object as written by whoever makes it, with the placeholder for its version.
func (c *cluster) parsed(t *table, namespace, name string, data []byte) (*object, error) {
	var head struct {
		Metadata struct {
			Labels labels.Set `json:"labels"`
		} `json:"metadata"`
		Type   string                    `json:"type"`
		Spec   struct{ NodeName string } `json:"spec"`
		Status struct{ Phase string }    `json:"status"`
	}
	if err := json.Unmarshal(data, &head); err != nil && (t.kind == "Pod" || t.kind == "Secret") {
		return nil, err
	}
	o := &object{namespace: namespace, name: name, data: data, labels: head.Metadata.Labels}
	o.fields = labels.Set{"metadata.name": name, "metadata.namespace": namespace}
	switch t.kind {
	case "Pod":
		o.fields["spec.nodeName"], o.fields["status.phase"] = head.Spec.NodeName, head.Status.Phase
	case "Secret":
		o.fields["type"] = head.Type
	}
	if made := messages[t.apiVersion+"/"+t.kind]; made != nil && c.protobuf {
		o.message = made()
		if err := json.Unmarshal(data, o.message); err != nil {
			return nil, fmt.Errorf("%s %s/%s: %w", t.kind, namespace, name, err)
		}
	}
	return o, nil
}

// encoding is held by whoever changes a message, which all versions of an object share.
var encoding sync.Mutex

// at is the object at a version.
func (o *object) at(version uint64) *object {
	one := *o
	one.version = version
	old := placeholder
	if o.version > 0 {
		old = stamp(o.version)
	}
	one.data = bytes.Replace(o.data, old, stamp(version), 1)
	if o.message != nil {
		encoding.Lock()
		defer encoding.Unlock()
		o.message.SetResourceVersion(strconv.FormatUint(version, 10))
		one.encoded, _ = o.message.Marshal()
	}
	return &one
}

func stamp(version uint64) []byte {
	return append(strconv.AppendUint([]byte(`"resourceVersion":"`), version, 10), '"')
}

// selection tells which objects a reader wants; namespace "" is every one.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    []string
}

func (s *selection) has(o *object) bool {
	if o == nil || s.namespace != "" && o.namespace != s.namespace || !s.labels.Matches(o.labels) {
		return false
	}
	for _, one := range s.fields {
		name, value, differs := strings.Cut(one, "!=")
		if !differs {
			name, value, _ = strings.Cut(strings.Replace(one, "==", "=", 1), "=")
		}
		if (o.fields[name] == value) == differs {
			return false
		}
	}
	return true
}

// event is a write: the object before (nil: it was not there) and after (nil: it is gone).
type event struct {
	version       uint64
	before, after *object
}

// told is what a watch of a selection is told of an event: "" is nothing.
func (e *event) told(s *selection) (string, *object) {
	was, is := s.has(e.before), s.has(e.after)
	switch {
	case was && is:
		return "MODIFIED", e.after
	case is:
		return "ADDED", e.after
	case was:
		return "DELETED", e.before.at(e.version)
	}
	return "", nil
}

type key struct{ namespace, name string }

// table holds the objects of one kind, what happened to them, and the lists that are being read.
type table struct {
	resource
	items     map[key]*object
	events    []event
	compacted uint64 // the newest version that events no longer tell of
	lists     map[uint64][]*object
	newest    uint64        // number of the newest list
	changed   chan struct{} // closed and replaced with every event
}

// cluster is what one API server holds. Versions are the cluster's, as with etcd.
type cluster struct {
	name     string
	protobuf bool // whether it is spoken
	mu       sync.Mutex
	version  uint64
	tables   map[string]*table // by path below /api and /apis, such as /api/v1/pods
	denied   map[string]bool   // tokens that are answered with 401
	streamed bool              // lists may be asked for as a watch (WatchList)
	storm    bool              // every watch is told that its version is gone
	broken   chan struct{}     // closed while there is a storm
	lists    int               // first pages, and streamed lists
	watches  int
	open     int
}

func newCluster(name string, resources []resource, protobuf bool) *cluster {
	c := &cluster{
		name: name, protobuf: protobuf, version: 1000, tables: map[string]*table{}, denied: map[string]bool{},
		streamed: true, broken: make(chan struct{}),
	}
	for _, r := range resources {
		c.tables[r.path] = &table{
			resource: r, items: map[key]*object{}, lists: map[uint64][]*object{},
			changed: make(chan struct{}), compacted: c.version,
		}
	}
	return c
}

// put creates or changes an object and returns when: nanoseconds of CLOCK_MONOTONIC, Python's time.monotonic_ns().
func (c *cluster) put(t *table, o *object) (*object, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.store(t, key{o.namespace, o.name}, o)
}

// remove deletes an object; nil if there is none.
func (c *cluster) remove(t *table, k key) (*object, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.items[k] == nil {
		return nil, monotonic()
	}
	return c.store(t, k, nil)
}

// store writes an object, nil to delete it, and returns it, or what was deleted. mu is held.
func (c *cluster) store(t *table, k key, o *object) (*object, int64) {
	c.version++
	e := event{version: c.version, before: t.items[k]}
	if o != nil {
		o = o.at(c.version)
		t.items[k], e.after = o, o
	} else {
		delete(t.items, k)
		o = e.before
	}
	t.events = append(t.events, e)
	if len(t.events) > 2*longest {
		t.compacted = t.events[longest-1].version
		t.events = append([]event(nil), t.events[longest:]...)
	}
	now := monotonic()
	close(t.changed)
	t.changed = make(chan struct{})
	return o, now
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

// progress returns how far a watch is that has told everything up to a version: no further than that while there is more
// to tell, which a client that goes on from the bookmark would never hear.
func (c *cluster) progress(t *table, version uint64) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := len(t.events) - 1; last >= 0 && t.events[last].version > version {
		return version
	}
	return c.version
}

// get returns an object, or nil.
func (c *cluster) get(t *table, k key) *object {
	c.mu.Lock()
	defer c.mu.Unlock()
	return t.items[k]
}

// all returns the objects of a selection, sorted. mu is held.
func (c *cluster) all(t *table, s *selection) []*object {
	objects := make([]*object, 0, len(t.items))
	for _, o := range t.items {
		if s.has(o) {
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
func (c *cluster) list(t *table, s *selection) ([]*object, uint64, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists++
	t.newest++
	objects := c.all(t, s)
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

// deny answers a token with 401 from now on, or takes it again.
func (c *cluster) deny(token string, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denied[token] = on
}

func monotonic() int64 {
	var at syscall.Timespec
	const clockMonotonic = 1
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&at)), 0)
	return at.Nano()
}
