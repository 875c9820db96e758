package main

import (
	"encoding/json"
	"net/http"
	"sort"
	"strings"
)

type dict = map[string]any

// discover answers what the server is and which kinds it serves; false if that is not what is asked.
func (c *cluster) discover(w http.ResponseWriter, path string) bool {
	var answer any
	switch part := strings.Split(strings.Trim(path, "/"), "/"); {
	case path == "/" || path == "/healthz" || path == "/livez" || path == "/readyz":
		_, _ = w.Write([]byte("ok"))
		return true
	case path == "/version":
		answer = dict{"major": "1", "minor": "36", "gitVersion": "v1.36.1", "platform": "linux/amd64"}
	case path == "/api":
		answer = dict{"kind": "APIVersions", "versions": []string{"v1"}}
	case path == "/apis":
		answer = c.groups()
	case len(part) == 2 && part[0] == "api":
		answer = c.kinds(part[1])
	case len(part) == 3 && part[0] == "apis":
		answer = c.kinds(part[1] + "/" + part[2])
	default:
		return false
	}
	_ = json.NewEncoder(w).Encode(answer)
	return true
}

func (c *cluster) groups() any {
	versions := map[string]map[string]bool{}
	for _, t := range c.tables {
		if group, version, ok := strings.Cut(t.apiVersion, "/"); ok {
			if versions[group] == nil {
				versions[group] = map[string]bool{}
			}
			versions[group][version] = true
		}
	}
	var groups []dict
	for group, some := range versions {
		var served []dict
		for version := range some {
			served = append(served, dict{"groupVersion": group + "/" + version, "version": version})
		}
		sort.Slice(served, func(i, j int) bool { return served[i]["version"].(string) < served[j]["version"].(string) })
		groups = append(groups, dict{"name": group, "versions": served, "preferredVersion": served[0]})
	}
	return dict{"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
}

func (c *cluster) kinds(apiVersion string) any {
	resources := []dict{}
	for path, t := range c.tables {
		if t.apiVersion != apiVersion {
			continue
		}
		plural := path[strings.LastIndexByte(path, '/')+1:]
		for name, verbs := range map[string][]string{
			plural:             {"create", "delete", "get", "list", "patch", "update", "watch"},
			plural + "/status": {"get", "patch", "update"},
		} {
			resources = append(resources, dict{"name": name, "kind": t.kind, "namespaced": t.namespaced, "verbs": verbs})
		}
	}
	return dict{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": apiVersion, "resources": resources}
}
