package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// bookmarks is how often a watch is told how far it is, as API servers do.
const bookmarks = time.Minute

// ServeHTTP answers what a reader of a cluster asks; every caller is trusted.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	query, path, namespace := r.URL.Query(), r.URL.Path, ""
	if path == "/api/v1/namespaces/kube-system" {
		fmt.Fprintf(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"uid-of-%s"}}`, c.name)
		return
	}
	if before, rest, ok := strings.Cut(path, "/namespaces/"); ok {
		var plural string
		if namespace, plural, ok = strings.Cut(rest, "/"); ok {
			path = before + "/" + plural
		}
	}
	t := c.tables[path]
	selected := query.Get("fieldSelector") + query.Get("labelSelector")
	switch {
	case t == nil || r.Method != http.MethodGet:
		refuse(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
	case selected != "" && !c.empty(t):
		refuse(w, http.StatusBadRequest, "BadRequest", "selectors are not served where there are objects")
	case query.Get("watch") == "true":
		c.watch(w, r, t, query, namespace)
	default:
		c.page(w, t, query, namespace)
	}
}

func status(code int, reason, message string) []byte {
	data, _ := json.Marshal(map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure",
		"message": message, "reason": reason, "code": code,
	})
	return data
}

func refuse(w http.ResponseWriter, code int, reason, message string) {
	w.WriteHeader(code)
	_, _ = w.Write(status(code, reason, message))
}

// page answers LIST: all objects, or those after a continue token, up to the limit.
func (c *cluster) page(w http.ResponseWriter, t *table, query url.Values, namespace string) {
	limit, _ := strconv.Atoi(query.Get("limit"))
	var objects []*object
	var number, version uint64
	var start int
	if token := query.Get("continue"); token != "" {
		if _, err := fmt.Sscanf(token, "%d.%d.%d", &number, &version, &start); err != nil {
			refuse(w, http.StatusBadRequest, "BadRequest", "continue key is not valid")
			return
		}
		if objects = c.listed(t, number); objects == nil {
			refuse(w, http.StatusGone, "Expired", "The provided continue parameter is too old")
			return
		}
	} else {
		objects, number, version = c.list(t, namespace)
	}
	end, next := len(objects), ""
	if limit > 0 && start+limit < end {
		end = start + limit
		next = fmt.Sprintf(`,"continue":"%d.%d.%d","remainingItemCount":%d`, number, version, end, len(objects)-end)
	}
	out := bufio.NewWriterSize(w, 64<<10)
	fmt.Fprintf(out, `{"kind":"%sList","apiVersion":"%s","metadata":{"resourceVersion":"%d"%s},"items":[`,
		t.kind, t.apiVersion, version, next)
	for i, o := range objects[start:end] {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		_, _ = out.Write(o.data)
	}
	_, _ = out.WriteString("]}\n")
	_ = out.Flush()
}

// stream is the answer to a watch.
type stream struct {
	*bufio.Writer
	flusher http.Flusher
}

func (s stream) event(kind string, data []byte) {
	_, _ = s.WriteString(`{"type":"` + kind + `","object":`)
	_, _ = s.Write(data)
	_, _ = s.WriteString("}\n")
}

func (s stream) bookmark(t *table, version uint64, more string) {
	s.event("BOOKMARK", []byte(fmt.Sprintf(`{"kind":"%s","apiVersion":"%s","metadata":{"resourceVersion":"%d"%s}}`,
		t.kind, t.apiVersion, version, more)))
}

func (s stream) flush() {
	_ = s.Flush()
	s.flusher.Flush()
}

// watch answers WATCH from a version, or with all there is before (sendInitialEvents).
func (c *cluster) watch(w http.ResponseWriter, r *http.Request, t *table, query url.Values, namespace string) {
	version, _ := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	seconds, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	initial := query.Get("sendInitialEvents") == "true"
	c.mu.Lock()
	if initial && !c.streamed {
		c.mu.Unlock()
		refuse(w, http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
		return
	}
	c.watches++
	c.open++
	broken := c.broken
	var objects []*object
	if initial {
		c.lists++
		version, objects = c.version, c.all(t, namespace)
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.open--
		c.mu.Unlock()
	}()
	s := stream{bufio.NewWriterSize(w, 32<<10), w.(http.Flusher)}
	if initial {
		for _, o := range objects {
			s.event("ADDED", o.data)
		}
		s.bookmark(t, version, `,"annotations":{"k8s.io/initial-events-end":"true"}`)
	}
	s.flush()
	end := time.NewTimer(time.Duration(seconds) * time.Second)
	defer end.Stop()
	progress := time.NewTicker(bookmarks)
	defer progress.Stop()
	for {
		events, changed, known := c.since(t, version)
		select {
		case <-broken:
			known = false
		default:
		}
		if !known {
			s.event("ERROR", status(http.StatusGone, "Expired", "too old resource version"))
			s.flush()
			return
		}
		for i := range events {
			if e := &events[i]; namespace == "" || e.namespace == namespace {
				s.event(e.kind, e.data)
			}
			version = events[i].version
		}
		if len(events) > 0 {
			s.flush()
		}
		select {
		case <-changed:
		case <-broken:
		case <-progress.C:
			c.mu.Lock()
			version = max(version, c.version)
			c.mu.Unlock()
			s.bookmark(t, version, "")
			s.flush()
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// authority makes a certificate authority for this process, and a certificate of it for localhost.
func authority() ([]byte, tls.Certificate, error) {
	fail := func(err error) ([]byte, tls.Certificate, error) { return nil, tls.Certificate{}, err }
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	from, until := time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fakekube"}, NotBefore: from, NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	rootData, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		return fail(err)
	}
	if root, err = x509.ParseCertificate(rootData); err != nil {
		return fail(err)
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver"}, NotBefore: from, NotAfter: until,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leafData, err := x509.CreateCertificate(rand.Reader, leaf, root, leafKey.Public(), key)
	if err != nil {
		return fail(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootData})
	return text, tls.Certificate{Certificate: [][]byte{leafData}, PrivateKey: leafKey}, nil
}
