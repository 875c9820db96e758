package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
)

// uids is how many objects were created by requests.
var uids atomic.Uint64

var (
	errAbsent   = errors.New("not found")
	errExists   = errors.New("already exists")
	errConflict = errors.New("the object has been modified; please apply your changes to the latest version and try again")
)

// write answers POST, PUT, PATCH and DELETE of one object or of its status.
func (c *cluster) write(w http.ResponseWriter, r *http.Request, t *table, k key, sub string) {
	content, data, err := document(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	if strings.HasPrefix(t.apiVersion, "authentication.") || strings.HasPrefix(t.apiVersion, "authorization.") {
		review(w, t, content)
		return
	}
	code := http.StatusOK
	if r.Method == http.MethodPost {
		code = http.StatusCreated
		if k.name, _ = inside(content, "metadata", "name").(string); k.name == "" {
			prefix, _ := inside(content, "metadata", "generateName").(string)
			k.name = prefix + strconv.FormatUint(uids.Add(1), 36)
		}
	}
	c.mu.Lock()
	o, err := c.changed(r, t, k, sub, content, data)
	c.mu.Unlock()
	switch {
	case errors.Is(err, errAbsent):
		refuse(w, http.StatusNotFound, "NotFound", fmt.Sprintf("%s %q not found", t.kind, k.name))
	case errors.Is(err, errExists):
		refuse(w, http.StatusConflict, "AlreadyExists", fmt.Sprintf("%s %q already exists", t.kind, k.name))
	case errors.Is(err, errConflict):
		refuse(w, http.StatusConflict, "Conflict", err.Error())
	case err != nil:
		refuse(w, http.StatusUnprocessableEntity, "Invalid", err.Error())
	default:
		f := c.form(r, t)
		f.begin(w, code, "")
		_, _ = w.Write(f.object(o))
	}
}

// changed carries out a write and returns the object that it leaves. mu is held.
func (c *cluster) changed(r *http.Request, t *table, k key, sub string, content dict, data []byte) (*object, error) {
	before := t.items[k]
	old := dict{}
	if before != nil {
		_ = json.Unmarshal(before.data, &old)
	}
	kind := r.Header.Get("Content-Type")
	applied := strings.Contains(kind, "apply-patch")
	switch {
	case r.Method == http.MethodPost && before != nil:
		return nil, errExists
	case r.Method != http.MethodPost && before == nil && !applied:
		return nil, errAbsent
	case r.Method == http.MethodDelete:
		o, _ := c.store(t, k, nil)
		return o, nil
	case r.Method == http.MethodPatch && strings.Contains(kind, "json-patch"):
		if err := patch(old, data); err != nil {
			return nil, err
		}
		content = old
	case r.Method == http.MethodPatch:
		if sub == "status" {
			content = dict{"status": content["status"]}
		}
		if metadata, ok := content["metadata"].(dict); ok {
			delete(metadata, "resourceVersion")
		}
		content = merged(old, content)
	case r.Method == http.MethodPut:
		version, _ := inside(content, "metadata", "resourceVersion").(string)
		if version != "" && version != inside(old, "metadata", "resourceVersion") {
			return nil, errConflict
		}
		status, spec := content["status"], old
		if sub != "status" {
			status, spec = old["status"], content
		}
		content = merged(dict{}, spec)
		if delete(content, "status"); status != nil {
			content["status"] = status
		}
	}
	return c.kept(t, k, before, content)
}

// kept stores an object with what API servers set themselves; one that is as before makes no event. mu is held.
func (c *cluster) kept(t *table, k key, before *object, content dict) (*object, error) {
	metadata, ok := content["metadata"].(dict)
	if !ok {
		metadata = dict{}
	}
	content["apiVersion"], content["kind"], content["metadata"] = t.apiVersion, t.kind, metadata
	metadata["name"] = k.name
	if k.namespace != "" {
		metadata["namespace"] = k.namespace
	}
	old := dict{}
	if before == nil {
		metadata["uid"] = fmt.Sprintf("00000000-0000-0000-0000-%012d", uids.Add(1))
		metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
		metadata["generation"] = 1
	} else {
		_ = json.Unmarshal(before.data, &old)
		for _, name := range []string{"uid", "creationTimestamp", "generation"} {
			metadata[name] = inside(old, "metadata", name)
		}
		if !reflect.DeepEqual(old["spec"], content["spec"]) {
			generation, _ := metadata["generation"].(float64)
			metadata["generation"] = generation + 1
		}
		metadata["resourceVersion"] = inside(old, "metadata", "resourceVersion")
		if same(old, content) {
			return before, nil
		}
	}
	metadata["resourceVersion"] = "0"
	data, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	o, err := c.parsed(t, k.namespace, k.name, data)
	if err != nil {
		return nil, err
	}
	o, _ = c.store(t, k, o)
	return o, nil
}

func same(a, b dict) bool {
	one, _ := json.Marshal(a)
	other, _ := json.Marshal(b)
	return string(one) == string(other)
}

// review answers a TokenReview, which knows tokens of the form sa:NAMESPACE:NAME and sa:NAMESPACE:NAME:ANYTHING, and
// access reviews, which allow all.
func review(w http.ResponseWriter, t *table, content dict) {
	status := dict{"allowed": true}
	if t.kind == "TokenReview" {
		token, _ := inside(content, "spec", "token").(string)
		status = dict{"authenticated": false, "error": "unknown token"}
		if word := strings.Split(token, ":"); len(word) >= 3 && word[0] == "sa" {
			user := dict{"username": "system:serviceaccount:" + word[1] + ":" + word[2], "groups": []string{"system:serviceaccounts"}}
			status = dict{"authenticated": true, "audiences": []string{"istio-ca"}, "user": user}
		}
	}
	content["apiVersion"], content["kind"], content["status"] = t.apiVersion, t.kind, status
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(content)
}

// inside is the value at a path, nil if there is none.
func inside(content any, path ...string) any {
	for _, name := range path {
		within, _ := content.(dict)
		content = within[name]
	}
	return content
}

// merged puts a patch over a document (RFC 7396).
func merged(into, from dict) dict {
	for name, value := range from {
		switch one := value.(type) {
		case nil:
			delete(into, name)
		case dict:
			within, ok := into[name].(dict)
			if !ok {
				within = dict{}
			}
			into[name] = merged(within, one)
		default:
			into[name] = value
		}
	}
	return into
}

// patch changes a document (RFC 6902), as far as members of objects and the ends of lists go.
func patch(content dict, data []byte) error {
	var operations []struct {
		Op, Path string
		Value    any
	}
	if err := json.Unmarshal(data, &operations); err != nil {
		return err
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for _, one := range operations {
		path := strings.Split(strings.TrimPrefix(one.Path, "/"), "/")
		within, last := content, unescape.Replace(path[len(path)-1])
		for i, name := range path[:len(path)-1] {
			name = unescape.Replace(name)
			if list, ok := within[name].([]any); ok && last == "-" && i == len(path)-2 && one.Op == "add" {
				one.Value, last = append(list, one.Value), name
				break
			}
			next, ok := within[name].(dict)
			if !ok {
				return fmt.Errorf("there is no %s", one.Path)
			}
			within = next
		}
		value, there := within[last]
		switch one.Op {
		case "add":
			within[last] = one.Value
		case "replace", "remove":
			if !there {
				return fmt.Errorf("there is no %s", one.Path)
			}
			if delete(within, last); one.Op == "replace" {
				within[last] = one.Value
			}
		case "test":
			if !reflect.DeepEqual(value, one.Value) {
				return fmt.Errorf("%s is another", one.Path)
			}
		default:
			return fmt.Errorf("%s is not understood", one.Op)
		}
	}
	return nil
}
