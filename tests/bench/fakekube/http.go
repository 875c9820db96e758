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

	"k8s.io/apimachinery/pkg/labels"
)

// bookmarks is how often a watch is told how far it is, as API servers do.
const bookmarks = time.Minute

// ServeHTTP answers what a client of a cluster asks; every caller is trusted whose token is not denied.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	query, path := r.URL.Query(), r.URL.Path
	c.mu.Lock()
	denied := c.denied[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	c.mu.Unlock()
	switch {
	case denied:
		refuse(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
		return
	case path == "/api/v1/namespaces/kube-system":
		fmt.Fprintf(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"uid-of-%s"}}`, c.name)
		return
	case c.discover(w, path):
		return
	}
	t, k, sub := c.place(path)
	if t == nil {
		refuse(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
		return
	}
	labelled, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		refuse(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	comma := func(r rune) bool { return r == ',' }
	s := &selection{k.namespace, labelled, strings.FieldsFunc(query.Get("fieldSelector"), comma)}
	switch f := c.form(r, t); {
	case r.Method != http.MethodGet:
		c.write(w, r, t, k, sub)
	case k.name != "":
		if o := c.get(t, k); o != nil {
			f.begin(w, http.StatusOK, "")
			_, _ = w.Write(f.object(o))
		} else {
			refuse(w, http.StatusNotFound, "NotFound", fmt.Sprintf("%s %q not found", t.kind, k.name))
		}
	case query.Get("watch") == "true" || query.Get("watch") == "1":
		c.watch(w, r, f, query, s)
	default:
		c.page(w, f, query, s)
	}
}

// place is the table a path leads to, with the namespace, the name and the subresource that it says.
func (c *cluster) place(path string) (*table, key, string) {
	part, version := strings.Split(strings.Trim(path, "/"), "/"), 2
	if part[0] == "apis" {
		version = 3
	}
	if len(part) <= version {
		return nil, key{}, ""
	}
	root, rest, k := "/"+strings.Join(part[:version], "/")+"/", part[version:], key{}
	if rest[0] == "namespaces" && len(rest) > 2 && c.tables[root+rest[2]] != nil {
		k.namespace, rest = rest[1], rest[2:]
	}
	rest = append(rest, "", "")
	k.name = rest[1]
	return c.tables[root+rest[0]], k, rest[2]
}

func status(code int, reason, message string) []byte {
	data, _ := json.Marshal(map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure",
		"message": message, "reason": reason, "code": code,
	})
	return data
}

func refuse(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(status(code, reason, message))
}

// page answers LIST: all objects, or those after a continue token, up to the limit.
func (c *cluster) page(w http.ResponseWriter, f form, query url.Values, s *selection) {
	limit, _ := strconv.Atoi(query.Get("limit"))
	var objects []*object
	var number, version uint64
	var start int
	if token := query.Get("continue"); token != "" {
		if _, err := fmt.Sscanf(token, "%d.%d.%d", &number, &version, &start); err != nil {
			refuse(w, http.StatusBadRequest, "BadRequest", "continue key is not valid")
			return
		}
		if objects = c.listed(f.table, number); objects == nil {
			refuse(w, http.StatusGone, "Expired", "The provided continue parameter is too old")
			return
		}
	} else {
		objects, number, version = c.list(f.table, s)
	}
	end, token := len(objects), ""
	if limit > 0 && start+limit < end {
		end = start + limit
		token = fmt.Sprintf("%d.%d.%d", number, version, end)
	}
	f.begin(w, http.StatusOK, "")
	_, _ = w.Write(f.list(objects[start:end], version, token, len(objects)-end))
}

// watch answers WATCH from a version, or with all there is before (sendInitialEvents).
func (c *cluster) watch(w http.ResponseWriter, r *http.Request, f form, query url.Values, s *selection) {
	t := f.table
	version, _ := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	seconds, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	if seconds == 0 {
		seconds = 1800
	}
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
	}
	if initial || version == 0 {
		version, objects = c.version, c.all(t, s)
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.open--
		c.mu.Unlock()
	}()
	out, flusher := bufio.NewWriterSize(w, 32<<10), w.(http.Flusher)
	say := func(data []byte) { _, _ = out.Write(data) }
	flush := func() { _ = out.Flush(); flusher.Flush() }
	f.begin(w, http.StatusOK, ";stream=watch")
	for _, o := range objects {
		say(f.event("ADDED", f.object(o)))
	}
	if initial {
		say(f.bookmark(version, true))
	}
	flush()
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
			say(f.refused(http.StatusGone, "Expired", "too old resource version"))
			flush()
			return
		}
		for i := range events {
			if kind, o := events[i].told(s); o != nil {
				say(f.event(kind, f.object(o)))
			}
			version = events[i].version
		}
		if len(events) > 0 {
			flush()
		}
		select {
		case <-changed:
		case <-broken:
		case <-progress.C:
			version = c.progress(t, version)
			say(f.bookmark(version, false))
			flush()
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
