package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// message is an object as Kubernetes' own types hold it, which know their protobuf encoding.
type message interface {
	meta.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// messages are the kinds that are spoken in protobuf to whoever prefers it; API servers do so for all built-in ones, but
// of the others there is nothing here to be read.
var messages = map[string]func() message{
	"v1/ConfigMap":                         func() message { return new(core.ConfigMap) },
	"v1/Event":                             func() message { return new(core.Event) },
	"v1/Namespace":                         func() message { return new(core.Namespace) },
	"v1/Node":                              func() message { return new(core.Node) },
	"v1/Pod":                               func() message { return new(core.Pod) },
	"v1/Secret":                            func() message { return new(core.Secret) },
	"v1/Service":                           func() message { return new(core.Service) },
	"v1/ServiceAccount":                    func() message { return new(core.ServiceAccount) },
	"coordination.k8s.io/v1/Lease":         func() message { return new(coordination.Lease) },
	"discovery.k8s.io/v1/EndpointSlice":    func() message { return new(discovery.EndpointSlice) },
	"authentication.k8s.io/v1/TokenReview": func() message { return new(authentication.TokenReview) },
	"authorization.k8s.io/v1/SubjectAccessReview":     func() message { return new(authorization.SubjectAccessReview) },
	"authorization.k8s.io/v1/SelfSubjectAccessReview": func() message { return new(authorization.SelfSubjectAccessReview) },
}

const protobufType = "application/vnd.kubernetes.protobuf"

// magic opens every message in protobuf but those of a watch, which are framed by their length.
var magic = []byte("k8s\x00")

func field(to []byte, number int, value []byte) []byte {
	to = binary.AppendUvarint(to, uint64(number<<3|2))
	to = binary.AppendUvarint(to, uint64(len(value)))
	return append(to, value...)
}

// envelope wraps a message as runtime.Unknown, which says of what kind it is.
func envelope(apiVersion, kind string, raw []byte) []byte {
	typed := field(field(nil, 1, []byte(apiVersion)), 2, []byte(kind))
	return field(field(append(make([]byte, 0, len(raw)+96), magic...), 1, typed), 2, raw)
}

// form is how a reader wants its answer.
type form struct {
	*table
	protobuf bool // else JSON
	partial  bool // metadata alone
}

func (c *cluster) form(r *http.Request, t *table) form {
	accept := r.Header.Get("Accept")
	partial := strings.Contains(accept, "as=PartialObjectMetadata")
	return form{t, c.protobuf && !partial && messages[t.apiVersion+"/"+t.kind] != nil && strings.HasPrefix(accept, protobufType), partial}
}

func (f form) begin(w http.ResponseWriter, code int, more string) {
	if f.protobuf {
		w.Header().Set("Content-Type", protobufType+more)
	}
	w.WriteHeader(code)
}

func (f form) object(o *object) []byte {
	switch {
	case f.protobuf:
		return envelope(f.apiVersion, f.kind, o.encoded)
	case f.partial:
		var whole struct {
			Metadata json.RawMessage `json:"metadata"`
		}
		_ = json.Unmarshal(o.data, &whole)
		return fmt.Appendf(nil, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":%s}`, whole.Metadata)
	}
	return o.data
}

func (f form) event(kind string, data []byte) []byte {
	if f.protobuf {
		said := field(field(nil, 1, []byte(kind)), 2, field(nil, 1, data))
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(said))), said...)
	}
	return fmt.Appendf(nil, "{\"type\":\"%s\",\"object\":%s}\n", kind, data)
}

// bookmark tells how far a watch is; ended: and that all there was before has been sent.
func (f form) bookmark(version uint64, ended bool) []byte {
	text := strconv.FormatUint(version, 10)
	if f.protobuf {
		metadata := field(nil, 6, []byte(text))
		if ended {
			metadata = field(metadata, 12, field(field(nil, 1, []byte("k8s.io/initial-events-end")), 2, []byte("true")))
		}
		return f.event("BOOKMARK", envelope(f.apiVersion, f.kind, field(nil, 1, metadata)))
	}
	apiVersion, kind, more := f.apiVersion, f.kind, ""
	if f.partial {
		apiVersion, kind = "meta.k8s.io/v1", "PartialObjectMetadata"
	}
	if ended {
		more = `,"annotations":{"k8s.io/initial-events-end":"true"}`
	}
	return f.event("BOOKMARK", fmt.Appendf(nil, `{"kind":"%s","apiVersion":"%s","metadata":{"resourceVersion":"%s"%s}}`,
		kind, apiVersion, text, more))
}

// refused is the event that ends a watch.
func (f form) refused(code int, reason, message string) []byte {
	if !f.protobuf {
		return f.event("ERROR", status(code, reason, message))
	}
	said := meta.Status{Status: meta.StatusFailure, Code: int32(code), Reason: meta.StatusReason(reason), Message: message}
	raw, _ := said.Marshal()
	return f.event("ERROR", envelope("v1", "Status", raw))
}

// list is an answer to LIST.
func (f form) list(objects []*object, version uint64, token string, remaining int) []byte {
	text := strconv.FormatUint(version, 10)
	if f.protobuf {
		metadata := field(nil, 2, []byte(text))
		if token != "" {
			metadata = field(metadata, 3, []byte(token))
			metadata = binary.AppendUvarint(append(metadata, 4<<3), uint64(remaining))
		}
		raw := field(nil, 1, metadata)
		for _, o := range objects {
			raw = field(raw, 2, o.encoded)
		}
		return envelope(f.apiVersion, f.kind+"List", raw)
	}
	apiVersion, kind, more := f.apiVersion, f.kind, ""
	if f.partial {
		apiVersion, kind = "meta.k8s.io/v1", "PartialObjectMetadata"
	}
	if token != "" {
		more = fmt.Sprintf(`,"continue":"%s","remainingItemCount":%d`, token, remaining)
	}
	out := fmt.Appendf(nil, `{"kind":"%sList","apiVersion":"%s","metadata":{"resourceVersion":"%s"%s},"items":[`,
		kind, apiVersion, text, more)
	for i, o := range objects {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, f.object(o)...)
	}
	return append(out, "]}\n"...)
}

// document is what a request holds, whichever way it is encoded.
func document(r *http.Request) (map[string]any, []byte, error) {
	data, err := io.ReadAll(r.Body)
	if err != nil || len(data) == 0 {
		return map[string]any{}, nil, err
	}
	if strings.HasPrefix(string(data), string(magic)) {
		if data, err = decoded(data[len(magic):]); err != nil {
			return nil, nil, err
		}
	}
	var content map[string]any
	if data[0] != '[' {
		err = json.Unmarshal(data, &content)
	}
	return content, data, err
}

// decoded is a message in protobuf as JSON.
func decoded(data []byte) ([]byte, error) {
	unknown := map[uint64][]byte{}
	if err := fields(data, unknown); err != nil {
		return nil, err
	}
	typed := map[uint64][]byte{}
	if err := fields(unknown[1], typed); err != nil {
		return nil, err
	}
	name := string(typed[1]) + "/" + string(typed[2])
	made := messages[name]
	if made == nil {
		return nil, fmt.Errorf("%s is not understood in protobuf", name)
	}
	one := made()
	if err := one.Unmarshal(unknown[2]); err != nil {
		return nil, err
	}
	return json.Marshal(one)
}

// fields are the length-delimited fields of a message that has no others.
func fields(data []byte, into map[uint64][]byte) error {
	for len(data) > 0 {
		tag, n := binary.Uvarint(data)
		if n <= 0 || tag&7 != 2 {
			return errors.New("a message is malformed")
		}
		size, m := binary.Uvarint(data[n:])
		if m <= 0 || uint64(len(data)-n-m) < size {
			return errors.New("a message is too short")
		}
		into[tag>>3] = data[n+m : n+m+int(size)]
		data = data[n+m+int(size):]
	}
	return nil
}
