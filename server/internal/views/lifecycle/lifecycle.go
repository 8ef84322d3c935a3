// Package lifecycle implements the virtual workspaces initializingworkspaces and terminatingworkspaces: the controller
// of a workspace type sees the logical clusters that wait for it, works in them, and removes itself from their status.
package lifecycle

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"

	rbacv1 "k8s.io/api/rbac/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/admission"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/references"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/virtual"
	"github.com/kcplane/kcp/server/virtual/resources"
)

// Names of the two virtual workspaces, as in paths.
const (
	Initializing = "initializingworkspaces"
	Terminating  = "terminatingworkspaces"
)

// Config of the virtual workspaces.
type Config struct {
	Set        *informers.Set
	References *references.References
	Authorizer authorizer.UnconditionalAuthorizer
}

// Views returns both virtual workspaces.
func Views(config Config) (virtual.Views, error) {
	crd, err := customresources.System("logicalclusters.core.kcp.io")
	if err != nil {
		return nil, err
	}
	documents, err := resources.Documents(resources.Resource{Definition: crd, StatusOnly: true})
	if err != nil {
		return nil, err
	}
	find := func(s *stage) func(string) (virtual.View, string, error) {
		return func(path string) (virtual.View, string, error) {
			v := &view{Config: config, documents: documents, stage: s}
			var rest string
			if v.id, rest, _ = strings.Cut(path, "/"); v.id == "" {
				return nil, "", virtual.MissingTarget
			}
			if at := strings.LastIndexByte(v.id, ':'); at > 0 {
				v.typeCluster, v.typeName = logicalcluster.Name(v.id[:at]), v.id[at+1:]
			}
			if !strings.HasPrefix(rest, "clusters/") {
				return v, rest, nil
			}
			var err error
			v.cluster, rest, err = virtual.Cluster(rest)
			return v, rest, err
		}
	}
	return virtual.Views{Initializing: find(initializing), Terminating: find(terminating)}, nil
}

// stage contains the differences between initialization and termination.
type stage struct {
	noun, verb, group string
	label             func(id string) (key, value string)
	waits             func(lc *corev1alpha1.LogicalCluster, id string) bool
	permissions       func(*tenancyv1alpha1.WorkspaceType) []rbacv1.PolicyRule
	own               func(ctx context.Context, id string) context.Context
	phase             corev1alpha1.LogicalClusterPhase
	// entered makes watches deliver a logical cluster that begins to wait with the event type that controllers of
	// workspace types expect.
	entered func(ctx context.Context) context.Context
}

var initializing = &stage{
	noun: "initializer", verb: "initialize", group: "system:kcp:initializer:", phase: corev1alpha1.LogicalClusterPhaseInitializing,
	label: func(id string) (string, string) {
		return scheduling.InitializerLabel(corev1alpha1.LogicalClusterInitializer(id))
	},
	waits: func(lc *corev1alpha1.LogicalCluster, id string) bool {
		return lc.Status.Phase == corev1alpha1.LogicalClusterPhaseInitializing &&
			slices.Contains(lc.Status.Initializers, corev1alpha1.LogicalClusterInitializer(id))
	},
	permissions: func(wt *tenancyv1alpha1.WorkspaceType) []rbacv1.PolicyRule { return wt.Spec.InitializerPermissions },
	own: func(ctx context.Context, id string) context.Context {
		return admission.WithInitializer(ctx, corev1alpha1.LogicalClusterInitializer(id))
	},
	entered: func(ctx context.Context) context.Context { return ctx },
}

var terminating = &stage{
	noun: "terminator", verb: "terminate", group: "system:kcp:terminator:", phase: corev1alpha1.LogicalClusterPhaseTerminating,
	label: func(id string) (string, string) {
		return scheduling.TerminatorLabel(corev1alpha1.LogicalClusterTerminator(id))
	},
	waits: func(lc *corev1alpha1.LogicalCluster, id string) bool {
		return lc.DeletionTimestamp != nil && slices.Contains(lc.Status.Terminators, corev1alpha1.LogicalClusterTerminator(id))
	},
	permissions: func(wt *tenancyv1alpha1.WorkspaceType) []rbacv1.PolicyRule { return wt.Spec.TerminatorPermissions },
	own: func(ctx context.Context, id string) context.Context {
		return admission.WithTerminator(ctx, corev1alpha1.LogicalClusterTerminator(id))
	},
	entered: storage.WithModifiedOnEntry, // a workspace whose deletion begins is not a new object
}

// view is one of the virtual workspaces, for one type and one logical cluster or all of them.
type view struct {
	Config
	documents   http.Handler // discovery and OpenAPI of the resources that all views have
	stage       *stage
	id          string
	typeCluster logicalcluster.Name // empty if id does not name a type
	typeName    string
	cluster     logicalcluster.Cluster // empty in paths without a cluster
}

// Home implements virtual.Homed.
func (v *view) Home() logicalcluster.Name { return v.typeCluster }

// Target implements virtual.Targeted.
func (v *view) Target() logicalcluster.Cluster { return v.cluster }

// Authorize allows users who may initialize or terminate workspaces of the type. Paths without a type, which serve discovery,
// require the permission for all types of root.
func (v *view) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	typeCluster := v.typeCluster
	if typeCluster == "" {
		typeCluster = logicalcluster.Root
	}
	decision, _, err := v.Authorizer.Authorize(logicalcluster.WithName(ctx, typeCluster), authorizer.AttributesRecord{
		User: a.GetUser(), Verb: v.stage.verb, APIGroup: tenancyv1alpha1.SchemeGroupVersion.Group,
		APIVersion: tenancyv1alpha1.SchemeGroupVersion.Version,
		Resource:   "workspacetypes", Name: v.typeName, ResourceRequest: true,
	})
	if err != nil || decision != authorizer.DecisionAllow {
		return authorizer.DecisionDeny, fmt.Sprintf("missing verb='%s' permission on workspacetype %s", v.stage.verb, v.id), err
	}
	return authorizer.DecisionAllow, "", nil
}

// Serve serves the waiting LogicalClusters, and their content.
func (v *view) Serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		virtual.Fail(w, r, apierrors.NewInternalError(fmt.Errorf("no request info")))
		return
	}
	isLogicalCluster := info.IsResourceRequest && info.APIGroup == corev1alpha1.SchemeGroupVersion.Group && info.Resource == "logicalclusters"
	switch {
	case v.cluster.Name == "" && !info.IsResourceRequest:
		v.documents.ServeHTTP(w, r.WithContext(logicalcluster.WithWildcard(r.Context())))
	case v.typeName == "":
		virtual.Fail(w, r, apierrors.NewBadRequest(fmt.Sprintf("invalid %s %q: must be <logical cluster>:<workspace type>", v.stage.noun, v.id)))
	case v.cluster == logicalcluster.Cluster{}:
		virtual.Fail(w, r, virtual.MissingTarget)
	case v.cluster.Wildcard && (!isLogicalCluster || info.Name != "" || (info.Verb != "list" && info.Verb != "watch")):
		virtual.Fail(w, r, apierrors.NewForbidden(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Name,
			fmt.Errorf("across all logical clusters, only list and watch of the logicalclusters that wait for the %s are supported", v.stage.noun)))
	case v.cluster.Wildcard:
		v.serveWaiting(next, w, r)
	default:
		v.serveCluster(next, w, r, info, isLogicalCluster)
	}
}

// serveWaiting lists or watches the waiting LogicalClusters.
func (v *view) serveWaiting(next http.Handler, w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	key, value := v.stage.label(v.id)
	selectors := []string{key + "=" + value, corev1alpha1.PhaseLabel + "=" + string(v.stage.phase)}
	if given := query.Get("labelSelector"); given != "" {
		selectors = append(selectors, given)
	}
	query.Set("labelSelector", strings.Join(selectors, ","))
	ctx := v.stage.entered(request.WithUser(logicalcluster.WithWildcard(r.Context()), system))
	inner := r.WithContext(ctx)
	u := *r.URL
	u.RawQuery = query.Encode()
	inner.URL = &u
	next.ServeHTTP(w, inner)
}

// serveCluster serves the content of a waiting logical cluster.
func (v *view) serveCluster(next http.Handler, w http.ResponseWriter, r *http.Request, info *request.RequestInfo, isLogicalCluster bool) {
	ctx := logicalcluster.WithName(r.Context(), v.cluster.Name)
	lc, err := v.Set.LogicalClusters.Get(v.cluster.Name, "", corev1alpha1.LogicalClusterName)
	if (err != nil || !v.stage.waits(lc, v.id)) && isLogicalCluster {
		virtual.Fail(w, r, apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), info.Name))
		return
	}
	if err != nil || !v.stage.waits(lc, v.id) {
		virtual.Fail(w, r, apierrors.NewForbidden(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Name,
			fmt.Errorf("%s %q cannot access this workspace", v.stage.noun, v.id)))
		return
	}
	switch {
	case !info.IsResourceRequest:
		next.ServeHTTP(w, r.WithContext(ctx))
	case isLogicalCluster && slices.Contains([]string{"get", "list", "watch"}, info.Verb):
		next.ServeHTTP(w, r.WithContext(request.WithUser(ctx, system)))
	case isLogicalCluster && info.Subresource == "status" && (info.Verb == "update" || info.Verb == "patch"):
		ctx = request.WithUser(v.stage.own(ctx, v.id), system)
		next.ServeHTTP(w, r.WithContext(ctx))
	case isLogicalCluster:
		err := apierrors.NewMethodNotSupported(corev1alpha1.Resource("logicalclusters"), info.Verb)
		err.ErrStatus.Message += ": a controller of a workspace type can change only its own entry in the status"
		virtual.Fail(w, r, err)
	default:
		v.serveContent(next, w, r.WithContext(ctx), lc)
	}
}

// serveContent serves a request as the caller within the permissions of the type, or as the owner if the type has no
// permissions.
func (v *view) serveContent(next http.Handler, w http.ResponseWriter, r *http.Request, lc *corev1alpha1.LogicalCluster) {
	ctx := r.Context()
	caller, _ := request.UserFrom(ctx)
	attributes, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		virtual.Fail(w, r, apierrors.NewInternalError(err))
		return
	}
	refused := func(why string) {
		virtual.Fail(w, r, apierrors.NewForbidden(schema.GroupResource{Group: attributes.GetAPIGroup(),
			Resource: attributes.GetResource()}, attributes.GetName(),
			fmt.Errorf("%s %q denied by %sPermissions: %s", v.stage.noun, v.id, v.stage.noun, why)))
	}
	wt, err := v.find(ctx)
	switch {
	case err != nil:
		virtual.Fail(w, r, err)
		return
	case wt == nil:
		refused("the workspace type does not exist")
		return
	}
	if rules := v.stage.permissions(wt); len(rules) > 0 {
		if !rbac.RulesAllow(attributes, rules...) {
			refused("no rule allows this request")
			return
		}
		group := v.stage.group + v.id
		acting := &user.DefaultInfo{Name: caller.GetName(), UID: caller.GetUID(), Extra: caller.GetExtra(),
			Groups: append(slices.Clone(caller.GetGroups()), group)}
		next.ServeHTTP(w, r.WithContext(request.WithUser(ctx, acting)))
		return
	}
	owner := ownerOf(lc)
	if owner == nil {
		refused("the workspace has no owner to impersonate")
		return
	}
	decision, reason, err := v.Authorizer.Authorize(ctx, authorization.As(owner, attributes))
	if err != nil || decision != authorizer.DecisionAllow {
		refused("the owner does not have permission: " + reason)
		return
	}
	next.ServeHTTP(w, r.WithContext(request.WithUser(ctx, owner)))
}

// find returns the type, which another shard can hold, and nil if it does not exist. An error is retriable.
func (v *view) find(ctx context.Context) (*tenancyv1alpha1.WorkspaceType, error) {
	return references.Find(ctx, v.References, v.typeCluster, tenancyv1alpha1.Resource("workspacetypes"), v.typeName,
		func() (*tenancyv1alpha1.WorkspaceType, error) {
			return v.Set.WorkspaceTypes.Get(v.typeCluster, "", v.typeName)
		})
}

// ownerOf returns the creator of a logical cluster, without groups that give access to other clusters.
func ownerOf(lc *corev1alpha1.LogicalCluster) user.Info {
	if lc.Spec.CreatedBy == nil {
		return nil
	}
	by := lc.Spec.CreatedBy
	owner := &user.DefaultInfo{Name: by.Username, UID: by.UID, Groups: authorization.Unguarded(by.Groups), Extra: map[string][]string{}}
	for key, values := range by.Extra {
		owner.Extra[key] = values
	}
	// The initializer must not get permissions of the owner, or of identities in the owner's warrants, in other
	// clusters.
	return authorization.InClusterOnly(owner, logicalcluster.Of(lc))
}

// system is the user with which the server acts for the controllers of types.
var system = &user.DefaultInfo{Name: "system:kcp:virtual-workspace",
	Groups: []string{authorization.ExternalAdminGroup, user.AllAuthenticated}}
