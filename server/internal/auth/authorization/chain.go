package authorization

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationpath "k8s.io/apiserver/pkg/authorization/path"
	rbacvalidation "k8s.io/kubernetes/pkg/registry/rbac/validation"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/spans"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Names of the authorizers in --authorization-order.
const (
	AlwaysAllowGroups = "AlwaysAllowGroups"
	AlwaysAllowPaths  = "AlwaysAllowPaths"
	RBAC              = "RBAC"
	Webhook           = "Webhook"
)

// Config of the chain.
type Config struct {
	// Order lists the authorizers; the first that allows or denies decides.
	Order []string
	// AlwaysAllowPaths can be read by all users. A path that ends in * matches all paths with that prefix.
	AlwaysAllowPaths []string
	// Set has the objects of all clusters, Rules evaluates their RBAC.
	Set   *informers.Set
	Rules *Rules
	// Exports finds the bindings of exports; nil means that nothing is bound.
	Exports *exports.Exports
	// Stale returns an error if the objects of Set are too old for decisions; nil means that they never are.
	Stale func() error
	// Webhook is called at its position in Order, unless it is nil.
	Webhook authorizer.UnconditionalAuthorizer
}

// step is one step of the chain. It decides, or passes the request on if delegate is true.
type step struct {
	name string
	ask  func(ctx context.Context, a authorizer.Attributes) (decision authorizer.Decision, reason string, delegate bool, err error)
}

// New returns the chain of authorizers.
func New(config Config) (authorizer.Authorizer, error) {
	paths, err := authorizationpath.NewAuthorizer(config.AlwaysAllowPaths)
	if err != nil {
		return nil, fmt.Errorf("--authorization-always-allow-paths: %w", err)
	}
	c := chain{set: config.Set, rules: config.Rules, exports: config.Exports, stale: config.Stale}
	if c.stale == nil {
		c.stale = func() error { return nil }
	}
	steps := []step{{"impersonation", c.impersonation}}
	for _, name := range config.Order {
		switch name {
		case AlwaysAllowGroups:
			steps = append(steps, step{"alwaysallowgroups", c.alwaysAllowGroups})
		case AlwaysAllowPaths:
			steps = append(steps, step{"alwaysallowpaths", final(paths)})
		case RBAC:
			steps = append(steps, step{"rbac", c.rbac([]step{
				{"01-requiredgroups", c.requiredGroups},
				{"02-content", c.content},
				{"03-systemcrd", c.systemCRDs},
				{"04-maxpermissionpolicy", c.maximalPermission},
				{"05-bootstrap", c.policy(config.Rules.bootstrap, false)},
				{"05-local", c.policy(config.Rules.local, true)},
			})})
		case Webhook:
			if config.Webhook != nil {
				steps = append(steps, step{"webhook", final(config.Webhook)})
			}
		default:
			return nil, fmt.Errorf("--authorization-order: unknown authorizer %q; must be %s, %s, %s or %s", name, AlwaysAllowGroups,
				AlwaysAllowPaths, RBAC, Webhook)
		}
	}
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser() == nil {
			return noOpinion, "no user", nil
		}
		if u := ImpersonatedUser(ctx); u != nil {
			a = attributesOf{a, u}
		}
		ctx, span := spans.Start(ctx, "Authorize")
		decision, reason, err := firstOpinion(ctx, a, steps)
		span.End(err)
		return decision, reason, err
	}), nil
}

// firstOpinion calls the steps in order until one allows or denies.
func firstOpinion(ctx context.Context, a authorizer.Attributes, steps []step) (authorizer.Decision, string, error) {
	var reasons []string
	for _, s := range steps {
		decision, reason, delegate, err := s.ask(ctx, a)
		record(ctx, a, s.name, decision, reason, delegate)
		if err != nil || (!delegate && decision != authorizer.DecisionNoOpinion) {
			return decision, reason, err
		}
		if reason != "" {
			reasons = append(reasons, reason)
		}
	}
	return authorizer.DecisionNoOpinion, strings.Join(reasons, "; "), nil
}

// allGates calls the steps in order while each delegates to the next. The decision of a step that does not delegate is
// final: a step without an opinion does not let the request pass.
func allGates(ctx context.Context, a authorizer.Attributes, steps []step) (authorizer.Decision, string, bool, error) {
	for _, s := range steps {
		decision, reason, delegate, err := s.ask(ctx, a)
		record(ctx, a, s.name, decision, reason, delegate)
		if err != nil || !delegate {
			return decision, reason, false, err
		}
	}
	return authorizer.DecisionNoOpinion, "", false, nil
}

// record writes the decision about the request itself to the audit log. Decisions about impersonation are made before
// it, those of reviews and admission after it.
func record(ctx context.Context, a authorizer.Attributes, name string, decision authorizer.Decision, reason string, delegate bool) {
	logDecision(ctx, a, name, decision, reason, delegate)
	event := audit.AuditContextFrom(ctx)
	if !event.Enabled() || isImpersonation(a) || strings.HasPrefix(a.GetVerb(), "impersonate-on:") {
		return
	}
	prefix := "request.auth.kcp.io/" + name
	if _, recorded := event.GetEventAnnotation(prefix + "-decision"); recorded {
		return
	}
	audit.AddAuditAnnotations(ctx, prefix+"-decision", outcome(decision, delegate), prefix+"-reason", reason)
}

func final(a authorizer.UnconditionalAuthorizer) func(context.Context, authorizer.Attributes) (authorizer.Decision, string, bool, error) {
	return func(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, bool, error) {
		decision, reason, err := a.Authorize(ctx, attributes)
		return decision, reason, false, err
	}
}

// chain are the inputs of the steps.
type chain struct {
	set     *informers.Set
	rules   *Rules
	exports *exports.Exports
	stale   func() error
}

const (
	allow     = authorizer.DecisionAllow
	deny      = authorizer.DecisionDeny
	noOpinion = authorizer.DecisionNoOpinion
)

func (c chain) alwaysAllowGroups(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, bool, error) {
	if isMaster(ctx, a.GetUser()) {
		return allow, "member of " + user.SystemPrivilegedGroup, false, nil
	}
	return noOpinion, "", true, nil
}

// rbac calls the steps that end with RBAC itself, for requests to one cluster. The policy of root decides about
// requests of the server itself.
func (c chain) rbac(steps []step) func(context.Context, authorizer.Attributes) (authorizer.Decision, string, bool, error) {
	return func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, bool, error) {
		cluster, ok := logicalcluster.From(ctx)
		switch {
		case !ok && a.IsResourceRequest():
			return noOpinion, "no logical cluster", false, nil
		case !ok:
			if err := c.stale(); err != nil {
				return noOpinion, err.Error(), false, nil
			}
			decision, reason, err := c.rules.Authorize(logicalcluster.WithName(ctx, logicalcluster.Root), a)
			return decision, reason, false, err
		case cluster.Wildcard:
			return c.wildcard(ctx, a)
		}
		return allGates(ctx, a, steps)
	}
}

// wildcard allows list and watch across all logical clusters to users with a role binding in system:admin. The bootstrap
// policy does not count, because it grants permissions within a single cluster.
func (c chain) wildcard(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, bool, error) {
	if verb := a.GetVerb(); a.IsResourceRequest() && (verb == "list" || verb == "watch") {
		decision, reason, err := c.rules.authorize(logicalcluster.WithName(ctx, logicalcluster.SystemAdmin), a, c.rules.local)
		if err != nil || decision == allow {
			return decision, reason, false, err
		}
	}
	return noOpinion, "only administrators of the shard may access all logical clusters at once", false, nil
}

// get returns the LogicalCluster of a cluster, or nil if it does not exist.
func (c chain) get(cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	lc, err := c.set.LogicalClusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return lc, err
}

// requiredGroups denies access to a logical cluster to users who are not members of its required groups.
func (c chain) requiredGroups(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, bool, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return noOpinion, "", false, err
	}
	lc, err := c.get(cluster)
	if err != nil || lc == nil {
		return noOpinion, "", true, err
	}
	required := lc.Annotations[corev1alpha1.RequiredGroupsAnnotation]
	groups := sets.New(EffectiveGroups(a.GetUser(), cluster)...)
	if _, issued := IssuedIn(a.GetUser()); issued && (certified(a.GetUser()) || !isOfRoot(lc.Annotations[tenancyv1alpha1.TypeAnnotation])) {
		groups = nil // a tenant approved the certificate, or chose the issuer, that grants the groups
	}
	if IsDeepReview(ctx) || required == "" || isServiceAccount(a.GetUser().GetName()) ||
		groups.HasAny(LogicalClusterAdminGroup, ExternalAdminGroup, AdminGroup, WorkspaceBootstrapper) ||
		holdsRequired(groups, required) {
		return noOpinion, "", true, nil
	}
	return deny, "user is not a member of required groups: " + required, false, nil
}

// isOfRoot reports whether a workspace type, as <path>:<name>, is in the workspace root.
func isOfRoot(id string) bool {
	name, ok := strings.CutPrefix(id, string(logicalcluster.Root)+":")
	return ok && !strings.Contains(name, ":")
}

// holdsRequired evaluates "a,b;c": all groups of one clause, clauses separated by semicolons.
func holdsRequired(held sets.Set[string], required string) bool {
	for _, clause := range strings.Split(required, ";") {
		groups := strings.Split(clause, ",")
		if !slices.Contains(groups, "") && held.HasAll(groups...) {
			return true
		}
	}
	return false
}

// content lets users into a logical cluster that exists, is in a phase with content, and grants them access.
func (c chain) content(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, bool, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return noOpinion, "", false, err
	}
	if cluster.IsSystem() {
		return noOpinion, "only administrators of the shard may access its system logical clusters", false, nil
	}
	u := a.GetUser()
	if IsDeepReview(ctx) || slices.Contains(EffectiveGroups(u, cluster), LogicalClusterAdminGroup) {
		return noOpinion, "", true, nil
	}
	lc, err := c.get(cluster)
	if err != nil {
		return noOpinion, "", false, err
	}
	if lc == nil {
		return deny, "LogicalCluster not found", false, nil
	}
	switch lc.Status.Phase {
	case corev1alpha1.LogicalClusterPhaseInitializing, corev1alpha1.LogicalClusterPhaseReady, corev1alpha1.LogicalClusterPhaseInactive,
		corev1alpha1.LogicalClusterPhaseTerminating, corev1alpha1.LogicalClusterPhaseDeleting:
	default:
		return noOpinion, fmt.Sprintf("not permitted due to phase %q", lc.Status.Phase), false, nil
	}
	if isServiceAccount(u.GetName()) && inScope(u, cluster).GetName() == u.GetName() {
		return noOpinion, "", true, nil
	}
	access := authorizer.AttributesRecord{User: u, Verb: "access", Path: "/"}
	decision, _, err := c.rules.Authorize(ctx, access)
	if err != nil || decision != allow {
		return noOpinion, "no verb=access permission on /: workspace access not permitted", false, err
	}
	return noOpinion, "", true, nil
}

// systemCRDs denies writes to status that only the server maintains.
func (c chain) systemCRDs(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, bool, error) {
	if IsStatusOfServer(a) {
		return deny, "only the server may write the status", false, nil
	}
	return noOpinion, "", true, nil
}

// IsStatusOfServer reports whether a request concerns a status that only the server writes.
func IsStatusOfServer(a authorizer.Attributes) bool {
	ofServer := a.GetAPIGroup() == "cache.kcp.io" ||
		(a.GetAPIGroup() == "apis.kcp.io" && (a.GetResource() == "apibindings" || a.GetResource() == "apiexports"))
	return ofServer && a.GetSubresource() == "status"
}

// policy allows what the rules of a policy allow. Unless it is the last step, it passes other requests to the next
// step.
func (c chain) policy(p rbacvalidation.AuthorizationRuleResolver, last bool) func(context.Context,
	authorizer.Attributes) (authorizer.Decision, string, bool, error) {
	return func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, bool, error) {
		decision, reason, err := c.rules.authorize(ctx, a, p)
		return decision, reason, !last && decision == noOpinion, err
	}
}
