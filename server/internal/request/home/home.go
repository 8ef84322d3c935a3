// Package home gives every user a home workspace. It is created when the user first gets the Workspace "~" in root.
package home

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/conditions"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/process/spans"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Name is the name of the home of every user in root.
const Name = "~"

// patience is the maximum duration of the initializers of a home. After that, clients are not asked to retry.
const patience = time.Minute

var resource = tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")

// Clusters stores LogicalClusters, in the cluster of each call's context.
type Clusters interface {
	Get(ctx context.Context, name string, out runtime.Object) error
	Create(ctx context.Context, name string, obj runtime.Object) error
}

// Homes serves the homes of users.
type Homes struct {
	Clusters  Clusters
	Scheduler *scheduling.Scheduler
	// Authorizer decides who may create a home.
	Authorizer authorizer.Authorizer
	Serializer runtime.NegotiatedSerializer
	// Records are the Workspaces of homes on all shards, if this is the root shard of several.
	Records scheduling.Records
	// Ask gets the home of a user from the root shard, if this is another one.
	Ask func(ctx context.Context, who user.Info) (*tenancyv1alpha1.Workspace, error)

	creations creations
}

// isHome reports whether a request gets the home of its user.
func isHome(ctx context.Context, verb, group, resourceName, subresource, name string) bool {
	cluster, ok := logicalcluster.From(ctx)
	return ok && cluster.Name == logicalcluster.Root && verb == "get" && group == resource.Group && resourceName == resource.Resource &&
		subresource == "" && name == Name
}

// Authorizer allows every user to get their home, and delegates all other requests to next.
func Authorizer(next authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.IsResourceRequest() &&
			isHome(ctx, a.GetVerb(), a.GetAPIGroup(), a.GetResource(), a.GetSubresource(), a.GetName()) && isUser(a.GetUser()) {
			return authorizer.DecisionAllow, "every user may get their home", nil
		}
		return next.Authorize(ctx, a)
	})
}

// isUser reports whether a user is authenticated in root. Service accounts of other logical clusters are not: their names are not unique.
func isUser(u user.Info) bool {
	if u == nil || u.GetName() == "" {
		return false
	}
	if u = authorization.EffectiveIdentities(u, logicalcluster.Root)[0]; u.GetName() == user.Anonymous {
		return false
	}
	for _, group := range u.GetGroups() {
		if group == user.AllAuthenticated {
			return true
		}
	}
	return false
}

// WithHome serves requests for homes. It must be called after authorization.
func (h *Homes) WithHome(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		who, known := request.UserFrom(r.Context())
		if !ok || !known || !info.IsResourceRequest ||
			!isHome(r.Context(), info.Verb, info.APIGroup, info.Resource, info.Subresource, info.Name) {
			next.ServeHTTP(w, r)
			return
		}
		ctx, span := spans.Start(r.Context(), "Get or create home workspace")
		ws, err := h.home(ctx, who)
		span.End(err)
		if err != nil {
			responsewriters.ErrorNegotiated(err, h.Serializer, tenancyv1alpha1.SchemeGroupVersion, w, r)
			return
		}
		responsewriters.WriteRawJSON(http.StatusOK, ws, w)
	})
}

// home returns the home of a user, and creates it if it does not exist.
func (h *Homes) home(ctx context.Context, who user.Info) (*tenancyv1alpha1.Workspace, error) {
	if !isUser(who) {
		return nil, forbidden(who)
	}
	switch {
	case h.Records != nil:
		return h.recorded(ctx, who)
	case h.Ask != nil:
		return h.held(ctx, who)
	}
	return h.single(ctx, who)
}

// single returns the home of a user on the only shard, and creates it if it does not exist.
func (h *Homes) single(ctx context.Context, who user.Info) (*tenancyv1alpha1.Workspace, error) {
	name := pathindex.HomeCluster(who.GetName())
	inside := logicalcluster.WithName(ctx, name)
	lc := &corev1alpha1.LogicalCluster{}
	err := h.Clusters.Get(inside, corev1alpha1.LogicalClusterName, lc)
	if apierrors.IsNotFound(err) {
		if err := h.mayCreate(ctx, who); err != nil {
			return nil, err
		}
		lc, err = h.create(inside, name, who)
	}
	if err != nil {
		return nil, err
	}
	return h.show(name, lc), readiness(lc, lc.Status.Phase, lc.Status.Initializers)
}

// readiness returns an error for a home that is not ready.
func readiness(home metav1.Object, phase corev1alpha1.LogicalClusterPhase, initializers []corev1alpha1.LogicalClusterInitializer) error {
	switch {
	case home.GetDeletionTimestamp() != nil:
		return apierrors.NewConflict(resource.GroupResource(), Name, fmt.Errorf("your home workspace is being deleted"))
	case phase == corev1alpha1.LogicalClusterPhaseReady || phase == corev1alpha1.LogicalClusterPhaseInactive:
		return nil
	case time.Since(home.GetCreationTimestamp().Time) > patience:
		return apierrors.NewInternalError(fmt.Errorf("the home workspace is not ready after %s: it waits for the initializers %v", patience,
			initializers))
	}
	return apierrors.NewTooManyRequests("Creating the home workspace", 1)
}

// mayCreate returns an error if a user may not create the Workspace "~" in root.
func (h *Homes) mayCreate(ctx context.Context, who user.Info) error {
	decision, _, err := h.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: who, Verb: "create", APIGroup: resource.Group, APIVersion: resource.Version, Resource: resource.Resource,
		Name: Name, ResourceRequest: true,
	})
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if decision == authorizer.DecisionAllow {
		return nil
	}
	return forbidden(who)
}

func forbidden(who user.Info) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusForbidden,
		Reason:  metav1.StatusReasonForbidden,
		Details: &metav1.StatusDetails{Group: resource.Group, Kind: resource.Resource, Name: Name},
		Message: fmt.Sprintf(
			`%s %q is forbidden: User %q cannot create resource %q in API group %q at the cluster scope: workspace access not permitted`,
			resource.GroupResource(),
			Name,
			who.GetName(),
			resource.Resource,
			resource.Group,
		),
	}}
}

// create stores the logical cluster of a home, which no workspace owns, and waits until the informers of this server have it.
func (h *Homes) create(ctx context.Context, name logicalcluster.Name, who user.Info) (*corev1alpha1.LogicalCluster, error) {
	lc, err := h.Scheduler.WithoutWorkspace(scheduling.HomeType, name, pathindex.HomePath(who.GetName()))
	if err != nil {
		return nil, err
	}
	lc.Annotations[tenancyv1alpha1.OwnerAnnotation] = ownerOf(who)
	lc.Spec.CreatedBy = &corev1alpha1.UserInfo{Username: who.GetName(), UID: who.GetUID()}
	wait := h.Scheduler.ExpectCluster(name)
	err = h.Clusters.Create(ctx, corev1alpha1.LogicalClusterName, lc)
	if apierrors.IsAlreadyExists(err) { // by another request of the same user
		err = h.Clusters.Get(ctx, corev1alpha1.LogicalClusterName, lc)
	}
	wait(ctx, err == nil)
	return lc, err
}

// ownerOf returns a user as the annotation with the creator of a workspace.
func ownerOf(who user.Info) string {
	text, _ := json.Marshal(map[string]string{"username": who.GetName()}) // strings have no error
	return string(text)
}

// show returns the Workspace of a home. It is not stored.
func (h *Homes) show(name logicalcluster.Name, lc *corev1alpha1.LogicalCluster) *tenancyv1alpha1.Workspace {
	path := lc.Annotations[corev1alpha1.PathAnnotation]
	ws := &tenancyv1alpha1.Workspace{
		TypeMeta: metav1.TypeMeta{APIVersion: resource.GroupVersion().String(), Kind: "Workspace"},
		ObjectMeta: metav1.ObjectMeta{
			Name: corev1alpha1.LogicalClusterName, CreationTimestamp: lc.CreationTimestamp,
			Annotations: map[string]string{logicalcluster.AnnotationKey: string(logicalcluster.Root), corev1alpha1.PathAnnotation: path},
		},
		Spec: tenancyv1alpha1.WorkspaceSpec{
			Type: scheduling.HomeType.DeepCopy(), Cluster: string(name), URL: strings.TrimSuffix(lc.Status.URL, string(name)) + path,
		},
	}
	conditions.Set(&ws.Status.Conditions, corev1alpha1.Condition{Type: tenancyv1alpha1.WorkspaceScheduled, Status: metav1.ConditionTrue})
	h.Scheduler.MirrorStatus(ws, lc)
	sinceCreation(ws)
	return ws
}

// sinceCreation sets the times of the conditions of a home to that of its creation. Users see the same home whether a shard shows it from
// its record or from its LogicalCluster, and the latter has no other time.
func sinceCreation(ws *tenancyv1alpha1.Workspace) {
	for i := range ws.Status.Conditions {
		ws.Status.Conditions[i].LastTransitionTime = ws.CreationTimestamp
	}
}
