package customresources

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	names "k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/kcplane/kcp/server/internal/tenancy/cachedresources"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// This file serves subresources of virtual resources that are not part of an object, such as logs. Only the virtual workspace of the
// provider knows them: it gets the request, and its response is streamed. The permission is that of the user in the cluster of the
// consumer, and the virtual workspace does not learn who the user is.

// isForwarded reports whether a request is for a subresource of which nothing is stored with the object.
func isForwarded(info *request.RequestInfo) bool {
	return info.Subresource != "" && info.Subresource != "status" && info.Subresource != "scale"
}

// forward forwards a request that was authorized in the cluster of its context.
func (h *Handler) forward(w http.ResponseWriter, r *http.Request, installed Installed, info *request.RequestInfo) {
	d := installed.Definition
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	slice, ok := h.config.Cached.EndpointSlice(d.shownBy.Cluster, d.shownBy.Name, resource)
	_, inView := viewFrom(r.Context())
	below, valid := pathOf(d, info)
	if !ok || inView || !valid || h.config.Endpoints == nil {
		notServed(w, r)
		return
	}
	if info.Verb != "get" && info.Verb != "create" {
		fail(w, r, readOnly(resource, info.Verb))
		return
	}
	cluster, err := logicalcluster.NameFrom(r.Context())
	if err != nil {
		fail(w, r, apierrors.NewBadRequest(fmt.Sprintf("%s: use the name of one logical cluster", resource)))
		return
	}
	r, err = withHops(r)
	if err != nil {
		fail(w, r, apierrors.NewInternalError(err))
		return
	}
	if err := h.admitConnection(r, d, info); err != nil {
		fail(w, r, err)
		return
	}
	// What follows ends the request: another definition or binding, another export, another endpoint.
	exported := watchedPart(cachedresources.ExportPart(d.shownBy.Cluster, d.shownBy.Name))
	own := watched{logicalcluster.Cluster{Name: cluster}, ResourceName(info.Resource, info.APIGroup)}
	ctx, end := h.watches.Begin(r.Context(), own, exported)
	defer end()
	ctx, err = h.untilChanged(ctx, d, slice)
	if err != nil {
		fail(w, r, err)
		return
	}
	if now, _ := h.registry.get(cluster, own.key); now.Definition != d {
		fail(w, r, unavailable(d, errors.New("its definition has just changed; try again")))
		return
	}
	o, err := h.origin(ctx, d)
	switch {
	case err != nil:
		fail(w, r, err)
	case o.elsewhere == nil || o.version.Version != info.APIVersion:
		notServed(w, r)
	default:
		h.config.Endpoints.Forward(w, r.WithContext(ctx), o.elsewhere.url, below)
	}
}

// pathOf returns the path of a request for a subresource, built from its parts, so that the virtual workspace sees the object for which
// the request was authorized. It returns false if the path has more parts, or does not fit to the scope of the resource.
func pathOf(d *Definition, info *request.RequestInfo) (string, bool) {
	parts := []string{info.Resource, info.Name, info.Subresource}
	if len(info.Parts) != len(parts) || !d.Reaches(info.Namespace) {
		return "", false
	}
	prefix := []string{"", "apis", info.APIGroup, info.APIVersion}
	if info.APIGroup == "" {
		prefix = []string{"", "api", info.APIVersion}
	}
	if info.Namespace != "" {
		parts = append([]string{"namespaces", info.Namespace}, parts...)
	}
	for _, part := range parts {
		if part == "" || len(names.IsPathSegmentName(part)) > 0 {
			return "", false
		}
	}
	return strings.Join(append(prefix, parts...), "/"), true
}

// admitConnection applies the rules of Kubernetes for connections to subresources: an upgraded connection transports data in both
// directions, so that it requires the permission to create, by whatever method it is opened; and policies can refuse it.
func (h *Handler) admitConnection(r *http.Request, d *Definition, info *request.RequestInfo) error {
	upgrades := httpstream.IsUpgradeRequest(r)
	if upgrades && info.Verb != "create" {
		a, err := filters.GetAuthorizerAttributes(r.Context())
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		if err := h.authorize(r.Context(), creating{a}); err != nil {
			return err
		}
	}
	if !upgrades && info.Verb != "create" {
		return nil
	}
	who, _ := request.UserFrom(r.Context())
	version := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	attributes := admission.NewAttributesRecord(nil, nil, version.WithKind(d.CRD.Spec.Names.Kind), info.Namespace, info.Name,
		version.WithResource(info.Resource), info.Subresource, admission.Connect, nil, false, who)
	return h.admit(r.Context(), d, attributes)
}

// creating are the attributes of a request with the verb create.
type creating struct{ authorizer.Attributes }

// GetVerb implements authorizer.Attributes.
func (creating) GetVerb() string { return "create" }

// authorize returns an error for the client if a request is not allowed.
func (h *Handler) authorize(ctx context.Context, a authorizer.Attributes) error {
	decision, reason, err := h.config.Authorizer.Authorize(ctx, a)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if decision != authorizer.DecisionAllow {
		return apierrors.NewForbidden(schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}, a.GetName(),
			fmt.Errorf("%s", reason))
	}
	return nil
}
