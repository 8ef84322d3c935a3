package cacheserver

import (
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// verbs are those of every resource.
var verbs = metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}

// discover serves the documents that describe the API. Cached resources are not in them.
func (h *Handler) discover(w http.ResponseWriter, r *http.Request, t target) error {
	if len(t.rest) == 1 && t.rest[0] == "metrics" {
		return status(http.StatusNotImplemented, metav1.StatusReasonUnknown, "metrics are at /metrics, without a shard and a logical cluster")
	}
	document := documentOf(t)
	if document == nil || r.Method != http.MethodGet {
		return notFound("the cache server has no document at this path")
	}
	responsewriters.WriteObjectNegotiated(codecs, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{Version: "v1"}, w, r,
		http.StatusOK, document, false)
	return nil
}

func documentOf(t target) runtime.Object {
	switch {
	case t.rest[0] == "api" && t.version == "":
		return &metav1.APIVersions{Versions: []string{}}
	case t.rest[0] != "apis":
		return nil
	case t.group == "":
		return &metav1.APIGroupList{Groups: groups()}
	case t.version != "":
		return resourcesOf(schema.GroupVersion{Group: t.group, Version: t.version})
	}
	all := groups()
	if i := slices.IndexFunc(all, func(g metav1.APIGroup) bool { return g.Name == t.group }); i >= 0 {
		return &all[i]
	}
	return nil
}

// groups returns the groups of Kinds. The preferred version is the last one.
func groups() (all []metav1.APIGroup) {
	for _, k := range Kinds {
		version := metav1.GroupVersionForDiscovery{GroupVersion: k.GroupVersion().String(), Version: k.Version}
		i := slices.IndexFunc(all, func(g metav1.APIGroup) bool { return g.Name == k.Group })
		if i < 0 {
			i = len(all)
			all = append(all, metav1.APIGroup{Name: k.Group})
		}
		if !slices.Contains(all[i].Versions, version) {
			all[i].Versions = slices.Insert(all[i].Versions, 0, version)
		}
		all[i].PreferredVersion = all[i].Versions[0]
	}
	return all
}

// resourcesOf returns the resources of a version of a group, nil if there are none.
func resourcesOf(gv schema.GroupVersion) runtime.Object {
	list := &metav1.APIResourceList{GroupVersion: gv.String()}
	for _, k := range Kinds {
		if k.GroupVersion() == gv {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: k.Resource, Kind: k.Kind, Verbs: verbs})
		}
	}
	if list.APIResources == nil {
		return nil
	}
	return list
}
