package authorization

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// maximalPermission passes requests for bound APIs that the maximal permission policy of the provider allows.
func (c chain) maximalPermission(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, bool, error) {
	if c.exports == nil || !a.IsResourceRequest() || IsDeepReview(ctx) {
		return noOpinion, "", true, nil
	}
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return noOpinion, "", false, err
	}
	source, ok := c.exports.Source(cluster, schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()})
	if !ok {
		return noOpinion, "", true, nil
	}
	if err := c.exports.Unloaded(source); err != nil { // the policy is not known
		return noOpinion, "", false, err
	}
	export, err := c.exports.Get(source.Cluster, source.Export)
	if apierrors.IsNotFound(err) {
		return noOpinion, "", true, nil
	}
	if err != nil {
		return noOpinion, "", false, err
	}
	allowed, reason, err := c.rules.WithinPolicy(ctx, export, cluster, a)
	return noOpinion, reason, allowed, err
}

// WithinPolicy reports whether the policy of an export allows a request in the cluster of a consumer: whether a rule in the
// export's own cluster allows it, for the name that represents the user there. It must allow an impersonator as well: the
// consumer decides who may impersonate, but the provider decides which users the policy trusts.
func (r *Rules) WithinPolicy(ctx context.Context, export *apisv1alpha2.APIExport, consumer logicalcluster.Name,
	a authorizer.Attributes) (allowed bool, reason string, err error) {
	if export.Spec.MaximalPermissionPolicy == nil || export.Spec.MaximalPermissionPolicy.Local == nil {
		return true, "", nil
	}
	provider := logicalcluster.Of(export)
	refused := fmt.Sprintf("API export %q|%q policy: access denied", provider, export.Name)
	if allowed, err := r.inPolicyOf(ctx, provider, consumer, a.GetUser(), a); err != nil || !allowed {
		return false, refused, err
	}
	if by := impersonatorOf(a.GetUser()); by != nil {
		if allowed, err := r.inPolicyOf(ctx, provider, consumer, by, a); err != nil || !allowed {
			return false, refused + " to the impersonator", err
		}
	}
	return true, "", nil
}

// inPolicyOf reports whether rules of a provider's cluster allow a for u, a user of a consumer.
func (r *Rules) inPolicyOf(ctx context.Context, provider, consumer logicalcluster.Name, u user.Info,
	a authorizer.Attributes) (bool, error) {
	there := logicalcluster.WithName(ctx, provider)
	for _, identity := range EffectiveIdentities(u, consumer) {
		decision, _, err := r.Authorize(there, attributesOf{a, inPolicy(identity, provider)})
		if err != nil || decision == allow {
			return decision == allow, err
		}
	}
	return false, nil
}

// inPolicy returns the name and groups of an identity in policies of a provider. No user can have them elsewhere, because names that
// users choose also get the prefix. A user of a consumer's issuer is an anonymous member of that cluster, because the consumer
// decides which names and groups its issuer assigns.
func inPolicy(u user.Info, provider logicalcluster.Name) user.Info {
	if _, issued := IssuedIn(u); issued {
		u = inScope(u, provider)
	}
	name := u.GetName()
	if isServiceAccount(name) {
		home, ok := ServiceAccountCluster(u)
		namespace, account, err := serviceaccount.SplitUsername(name)
		if err != nil || !ok {
			return &user.DefaultInfo{Name: BindingPrefix + user.Anonymous, Groups: []string{BindingPrefix + user.AllUnauthenticated}}
		}
		name = globalName(home, namespace, account)
	}
	groups := make([]string, 0, len(u.GetGroups()))
	for _, group := range u.GetGroups() {
		groups = append(groups, BindingPrefix+group)
	}
	return &user.DefaultInfo{Name: BindingPrefix + name, Groups: groups}
}
