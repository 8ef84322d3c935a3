package apiexport

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/admission"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/apis/derived"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/claims"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// claimed returns the claim of the export on a resource, nil if it has none.
func claimed(export *apisv1alpha2.APIExport, resource schema.GroupResource) *apisv1alpha2.PermissionClaim {
	resource = claims.Normalize(resource)
	for i := range export.Spec.PermissionClaims {
		claim := &export.Spec.PermissionClaims[i]
		if claims.Normalize(schema.GroupResource{Group: claim.Group, Resource: claim.Resource}) == resource {
			return claim
		}
	}
	return nil
}

// Claimed returns a function that reports whether a view has a resource because its export claims it.
func Claimed(all *exports.Exports) func(view logicalcluster.Name, resource schema.GroupResource) bool {
	return func(view logicalcluster.Name, resource schema.GroupResource) bool {
		cluster, name, ok := customresources.ExportOf(view)
		if !ok {
			return false
		}
		export, err := all.Get(cluster, name)
		return err == nil && claimed(export, resource) != nil
	}
}

// CustomResources returns a function that returns the custom resources of a view: those of its export, and those of other exports that
// it claims by their identity. list returns the resources of an export.
func CustomResources(all *exports.Exports,
	list func(view logicalcluster.Name) []customresources.Installed) func(view logicalcluster.Name) []customresources.Installed {
	return func(view logicalcluster.Name) []customresources.Installed {
		shown := list(view)
		cluster, name, ok := customresources.ExportOf(view)
		if !ok {
			return shown
		}
		export, err := all.Get(cluster, name)
		if err != nil {
			return shown
		}
		for _, claim := range export.Spec.PermissionClaims {
			key := customresources.ResourceName(claim.Resource, claim.Group)
			if claim.IdentityHash == "" || slices.ContainsFunc(shown, func(i customresources.Installed) bool { return i.Key() == key }) {
				continue
			}
			for _, provider := range all.WithIdentity(claim.IdentityHash) {
				offered := list(customresources.ViewOf(logicalcluster.Of(provider), provider.Name))
				claimed := func(i customresources.Installed) bool {
					return i.Key() == key && (i.Identity == claim.IdentityHash || i.IsSystem()) // system resources are stored without an identity
				}
				if at := slices.IndexFunc(offered, claimed); at >= 0 {
					shown = append(shown, offered[at])
					break
				}
			}
		}
		slices.SortFunc(shown, func(a, b customresources.Installed) int { return strings.Compare(a.Key(), b.Key()) })
		return shown
	}
}

// accepted returns the acceptance of a claim by a binding; nil if the binding does not accept it.
func accepted(binding *apisv1alpha2.APIBinding, claim *apisv1alpha2.PermissionClaim) *apisv1alpha2.ScopedPermissionClaim {
	all := claims.Accepted(binding)
	i := slices.IndexFunc(all, func(a apisv1alpha2.ScopedPermissionClaim) bool {
		return claims.KeyOf(&a.PermissionClaim) == claims.KeyOf(claim)
	})
	if i < 0 {
		return nil
	}
	return &all[i]
}

// authorizeClaimed allows requests for claimed objects that the claim, its acceptance and the provider of the claimed resource all
// allow. In requests across all logical clusters, the labels of objects show that the claim is accepted.
func (v *view) authorizeClaimed(ctx context.Context, a authorizer.Attributes, claim *apisv1alpha2.PermissionClaim,
	binding *apisv1alpha2.APIBinding) (authorizer.Decision, string, error) {
	if subresource := a.GetSubresource(); subresource != "" && subresource != "status" {
		// A claim on an object does not cover other subresources: for example, it must not grant tokens of service
		// accounts, or approvals of requests.
		return authorizer.DecisionDeny, fmt.Sprintf("a permission claim covers only objects and their status, not "+
			"%s/%s", a.GetResource(), subresource), nil
	}
	if authorization.IsStatusOfServer(a) && !isRead(a.GetVerb()) {
		return authorizer.DecisionDeny, "only the server may write the status", nil
	}
	verbs := claims.EffectiveVerbs(claim.Verbs, claim.Verbs)
	if binding != nil {
		acceptance := accepted(binding, claim)
		if acceptance == nil {
			return authorizer.DecisionDeny, notClaimed, nil
		}
		verbs = claims.EffectiveVerbs(claim.Verbs, acceptance.Verbs)
	}
	if !claims.Allows(verbs, a.GetVerb()) {
		return authorizer.DecisionDeny, notClaimed, nil
	}
	if claim.IdentityHash == "" {
		return authorizer.DecisionAllow, "", nil
	}
	providers := v.Exports.WithIdentity(claim.IdentityHash)
	if len(providers) == 0 {
		return authorizer.DecisionDeny, fmt.Sprintf("no APIExport has the identity hash of the claim on %s", claims.KeyOf(claim)), nil
	}
	for _, provider := range providers {
		source := exports.Source{Cluster: logicalcluster.Of(provider), Export: provider.Name}
		if err := v.Exports.Unloaded(source); err != nil { // its policy is not known
			return authorizer.DecisionDeny, "", err
		}
		if allowed, reason, err := v.Rules.WithinPolicy(ctx, provider, v.cluster, a); err != nil || !allowed {
			return authorizer.DecisionDeny, reason, err
		}
	}
	return authorizer.DecisionAllow, "", nil
}

// serveClaimed serves the objects of a resource that are labeled with the claim.
func (v *view) serveClaimed(next http.Handler, w http.ResponseWriter, r *http.Request, claim *apisv1alpha2.PermissionClaim, verb string) {
	ctx := r.Context()
	if claim.IdentityHash != "" {
		ctx = customresources.WithIdentity(ctx, claim.IdentityHash)
	}
	if binding := v.binding(); binding != nil {
		if acceptance := accepted(binding, claim); acceptance != nil {
			ctx = admission.WithClaim(ctx, &acceptance.Selector)
		}
	}
	next.ServeHTTP(w, r.WithContext(storage.WithRestriction(derived.StoredOnly(ctx), v.reached(claim, verb))))
}

// reached selects the objects of a claim for requests with a verb. Lists and watches return the objects that their cluster allows the
// export to list: a watch of one cluster, whose verbs are checked when it begins, stops delivering objects when the cluster no longer
// allows it.
func (v *view) reached(claim *apisv1alpha2.PermissionClaim, verb string) labels.Selector {
	export := claims.Export{Cluster: v.cluster, Name: v.export}
	key, value := export.Label(claim)
	listed := labels.SelectorFromSet(labels.Set{key: value})
	if v.target.Wildcard || verb == "list" || verb == "watch" {
		return listed
	}
	_, unlisted := export.UnlistedLabel(claim)
	either, err := labels.NewRequirement(key, selection.In, []string{value, unlisted})
	if err != nil {
		return listed // both are valid
	}
	return labels.NewSelector().Add(*either)
}

// bindings selects the APIBindings that a request can read: those to the export, and those that its claim on APIBindings selects if the
// claim allows verb. claim is nil if the export has no such claim.
func (v *view) bindings(claim *apisv1alpha2.PermissionClaim, verb string) labels.Selector {
	key, value := exports.BindingLabel(v.cluster, v.export)
	own := labels.SelectorFromSet(labels.Set{key: value})
	if claim == nil {
		return own
	}
	export := claims.Export{Cluster: v.cluster, Name: v.export}
	key, reflexive := export.ReflexiveLabel()
	_, listed := export.Label(claim)
	_, unlisted := export.UnlistedLabel(claim)
	values := []string{reflexive, listed}
	if verb == "get" {
		values = append(values, unlisted)
	}
	verbs := claims.EffectiveVerbs(claim.Verbs, claim.Verbs)
	if !v.target.Wildcard {
		binding := v.binding()
		if binding == nil {
			return own
		}
		acceptance := accepted(binding, claim)
		if acceptance == nil {
			return own
		}
		verbs = claims.EffectiveVerbs(claim.Verbs, acceptance.Verbs)
	}
	either, err := labels.NewRequirement(key, selection.In, values)
	if err != nil || !claims.Allows(verbs, verb) {
		return own
	}
	return labels.NewSelector().Add(*either)
}
