// fakekube is a process with many small API servers, each on a port of its own by TLS, for benchmarks: what they cost
// is not to be confused with what their readers cost. It does what it reads on its standard input, a command a line,
// and answers those that ask for something with a line of JSON:
//
//	(at the start)                                      {"ca": PEM of the authority of all servers}
//	resource APIVERSION KIND PATH                       a kind that clusters made from now on serve
//	cluster NAME                                        {"port": PORT}
//	put CLUSTER PATH NAMESPACE NAME JSON                an object is created or changed; "-" is no namespace
//	stage CLUSTER PATH NAMESPACE NAME JSON              the same, when it is run
//	run [GAP,GAP...]                                    what is staged happens, each so many ns after the one before:
//	                                                    {"at": [ns of CLOCK_MONOTONIC, ...]}
//	streamed CLUSTER on|off                             whether lists may be asked for as a watch
//	storm CLUSTER on|off                                every watch is answered with 410 Gone
//	expire CLUSTER                                      continue tokens given so far are answered with 410 Gone
//	stats                                               {NAME: {"lists": N, "watches": N, "open": N}}
//
// It knows LIST in pages, WATCH with bookmarks and streamed lists, and ends with its standard input.
package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

type resource struct{ apiVersion, kind, path string }

type staged struct {
	cluster               *cluster
	path, namespace, name string
	data                  []byte
}

type process struct {
	certificate tls.Certificate
	resources   []resource
	clusters    map[string]*cluster
	staged      []staged
	out         *json.Encoder
}

func main() {
	ca, certificate, err := authority()
	if err != nil {
		log.Fatal(err)
	}
	p := &process{certificate: certificate, clusters: map[string]*cluster{}, out: json.NewEncoder(os.Stdout)}
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
		p.resources = append(p.resources, resource{word[0], word[1], word[2]})
	case "cluster":
		p.tell(map[string]int{"port": p.serve(word[0])})
	case "put", "stage":
		if word[2] == "-" {
			word[2] = ""
		}
		one := staged{p.clusters[word[0]], word[1], word[2], word[3], []byte(word[4])}
		if command == "put" {
			one.cluster.put(one.path, one.namespace, one.name, one.data)
		} else {
			p.staged = append(p.staged, one)
		}
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

func (p *process) run(gaps []string) []int64 {
	at := make([]int64, 0, len(p.staged))
	due := time.Now()
	for i, one := range p.staged {
		if i < len(gaps) {
			gap, err := strconv.ParseInt(gaps[i], 10, 64)
			if err != nil {
				log.Fatal(err)
			}
			due = due.Add(time.Duration(gap))
			time.Sleep(time.Until(due))
		}
		at = append(at, one.cluster.put(one.path, one.namespace, one.name, one.data))
	}
	p.staged = nil
	return at
}

func (p *process) serve(name string) int {
	c := newCluster(name, p.resources)
	p.clusters[name] = c
	config := &tls.Config{Certificates: []tls.Certificate{p.certificate}, NextProtos: []string{"http/1.1"}}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: c, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { log.Fatal(server.Serve(listener)) }()
	return listener.Addr().(*net.TCPAddr).Port
}
