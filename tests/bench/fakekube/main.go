// fakekube is a process with many small API servers, each on a port of its own by TLS, for benchmarks: what they cost
// is not to be confused with what their readers cost. It does what it reads on its standard input, a command a line,
// and answers those that ask for something with a line of JSON:
//
//	(at the start)                                      {"ca": PEM of the authority of all servers}
//	resource APIVERSION KIND PATH NAMESPACED            a kind that clusters made from now on serve; true or false
//	cluster NAME                                        {"port": PORT}
//	put CLUSTER PATH NAMESPACE NAME JSON                an object is created or changed; "-" is no namespace
//	delete CLUSTER PATH NAMESPACE NAME                  it is deleted
//	stage put|delete CLUSTER ...                        the same, when it is run
//	run [GAP,GAP...]                                    what is staged happens, each so many ns after the one before:
//	                                                    {"at": [ns of CLOCK_MONOTONIC, ...]}
//	streamed CLUSTER on|off                             whether lists may be asked for as a watch
//	storm CLUSTER on|off                                every watch is answered with 410 Gone
//	expire CLUSTER                                      continue tokens given so far are answered with 410 Gone
//	down CLUSTER on|off                                 its port refuses, and its connections are cut
//	deny CLUSTER TOKEN on|off                           that token is answered with 401
//	cut CLUSTER                                         its connections are cut
//	stats                                               {NAME: {"lists": N, "watches": N, "open": N}}
//
// It knows LIST in pages, WATCH with bookmarks and streamed lists, selectors, writes, discovery and reviews, in JSON and,
// with -protobuf, the built-in kinds in protobuf as well, to whoever prefers that. It ends with its standard input.
package main

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"encoding/json"
	"flag"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

type resource struct {
	apiVersion, kind, path string
	namespaced             bool
}

type staged struct {
	cluster *cluster
	table   *table
	key     key
	object  *object // nil: deleted
}

func (s *staged) happen() int64 {
	if s.object == nil {
		_, at := s.cluster.remove(s.table, s.key)
		return at
	}
	_, at := s.cluster.put(s.table, s.object)
	return at
}

type process struct {
	certificate tls.Certificate
	protobuf    bool
	resources   []resource
	clusters    map[string]*cluster
	ports       map[string]string
	servers     map[string]*http.Server
	listeners   map[string]net.Listener
	staged      []staged
	out         *json.Encoder
}

func main() {
	protobuf := flag.Bool("protobuf", false, "speak protobuf to whoever prefers it")
	flag.Parse()
	ca, certificate, err := authority()
	if err != nil {
		log.Fatal(err)
	}
	p := &process{
		certificate: certificate, protobuf: *protobuf, clusters: map[string]*cluster{}, ports: map[string]string{},
		servers: map[string]*http.Server{}, listeners: map[string]net.Listener{}, out: json.NewEncoder(os.Stdout),
	}
	p.tell(map[string]string{"ca": string(ca)})
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		p.obey(line[:len(line)-1])
	}
}

func (p *process) tell(answer any) {
	if err := p.out.Encode(answer); err != nil {
		log.Fatal(err)
	}
}

func (p *process) obey(line []byte) {
	command, rest, _ := strings.Cut(string(line), " ")
	word := strings.SplitN(rest, " ", 5)
	switch command {
	case "resource":
		p.resources = append(p.resources, resource{word[0], word[1], word[2], word[3] == "true"})
	case "cluster":
		p.tell(map[string]int{"port": p.begin(word[0])})
	case "put", "delete":
		one := p.read(command, rest)
		one.happen()
	case "stage":
		what, rest, _ := strings.Cut(rest, " ")
		p.staged = append(p.staged, p.read(what, rest))
	case "down":
		if word[1] == "on" {
			p.stop(word[0])
		} else {
			p.serve(word[0])
		}
	case "cut":
		p.stop(word[0])
		p.serve(word[0])
	case "deny":
		p.clusters[word[0]].deny(word[1], word[2] == "on")
	case "run":
		p.tell(map[string][]int64{"at": p.run(strings.FieldsFunc(rest, func(r rune) bool { return r == ',' }))})
	case "streamed":
		c := p.clusters[word[0]]
		c.mu.Lock()
		c.streamed = word[1] == "on"
		c.mu.Unlock()
	case "storm":
		p.clusters[word[0]].weather(word[1] == "on")
	case "expire":
		p.clusters[word[0]].expire()
	case "stats":
		all := map[string]map[string]int{}
		for name, c := range p.clusters {
			c.mu.Lock()
			all[name] = map[string]int{"lists": c.lists, "watches": c.watches, "open": c.open}
			c.mu.Unlock()
		}
		p.tell(all)
	default:
		log.Fatalf("%q is no command", command)
	}
}

// read is a write as a command says it.
func (p *process) read(what, rest string) staged {
	word := strings.SplitN(rest, " ", 5)
	if word[2] == "-" {
		word[2] = ""
	}
	c := p.clusters[word[0]]
	one := staged{cluster: c, table: c.tables[word[1]], key: key{word[2], word[3]}}
	if what == "put" {
		var err error
		if one.object, err = c.parsed(one.table, word[2], word[3], []byte(word[4])); err != nil {
			log.Fatal(err)
		}
	}
	return one
}

func (p *process) run(gaps []string) []int64 {
	at := make([]int64, 0, len(p.staged))
	due := time.Now()
	for i := range p.staged {
		if i < len(gaps) {
			gap, err := strconv.ParseInt(gaps[i], 10, 64)
			if err != nil {
				log.Fatal(err)
			}
			due = due.Add(time.Duration(gap))
			time.Sleep(time.Until(due))
		}
		at = append(at, p.staged[i].happen())
	}
	p.staged = nil
	return at
}

// begin makes a server and returns its port.
func (p *process) begin(name string) int {
	p.clusters[name], p.ports[name] = newCluster(name, p.resources, p.protobuf), ""
	return p.serve(name)
}

// stop ends a server and all its connections. Its listener is closed here, since a server that has not come to serve it
// does not know it yet, and its port would stay taken.
func (p *process) stop(name string) {
	_ = p.servers[name].Close()
	_ = p.listeners[name].Close()
}

// serve listens on the port of a server. It is none of those that the system gives to connections by itself: one of them
// could take it while the server is down.
func (p *process) serve(name string) int {
	listen := func(port string) (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:"+port) }
	anywhere := func() string { return strconv.Itoa(20_000 + rand.IntN(12_000)) }
	listener, err := listen(cmp.Or(p.ports[name], anywhere()))
	for try := 0; err != nil && p.ports[name] == "" && try < 100; try++ {
		listener, err = listen(anywhere())
	}
	if err != nil {
		log.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	p.ports[name] = strconv.Itoa(port)
	server := &http.Server{
		Handler: p.clusters[name], ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{p.certificate}},
	}
	p.servers[name], p.listeners[name] = server, listener
	go func() { _ = server.ServeTLS(listener, "", "") }()
	return port
}
