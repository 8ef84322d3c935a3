package logicalcluster

import (
	"context"
	"errors"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// AnnotationKey holds the logical cluster of every object.
const AnnotationKey = corev1alpha1.ClusterAnnotation

// UserExtraKey is the key of a user's extra with the logical cluster that a service account lives in, or whose issuer vouches for the user.
const UserExtraKey = "authentication.kcp.io/cluster-name"

// Name identifies one logical cluster: 16 characters of base36 for a workspace, or one of the names below.
type Name string

// Clusters that exist in every installation.
const (
	// Root is the top of the tree of workspaces.
	Root Name = "root"
	// SystemAdmin holds the bootstrap policy and the leases of controllers. Requests of shard administrators land here.
	SystemAdmin Name = "system:admin"
	// SystemCRDs is where the definitions live that every cluster serves.
	SystemCRDs Name = "system:system-crds"
	// SystemBoundCRDs is where the definitions of bound APIs live.
	SystemBoundCRDs Name = "system:bound-crds"
)

// TerminatingCause is the cause of errors of creating something in a logical cluster that is being deleted.
const TerminatingCause metav1.CauseType = "LogicalClusterTerminating"

// systemPrefix starts the names that no workspace can have.
const systemPrefix = "system:"

// MaxPathLength bounds a path or name in a URL, in bytes.
const MaxPathLength = 512

// IsSystem tells whether n is one of the server's own clusters.
func (n Name) IsSystem() bool { return strings.HasPrefix(string(n), systemPrefix) }

func (n Name) String() string { return string(n) }

// Cluster is what a request addresses: one logical cluster, or all of them.
type Cluster struct {
	// Name is empty for a wildcard.
	Name Name
	// Wildcard stands for every logical cluster of the shard. It is granted to privileged identities only, for reads.
	Wildcard bool
}

func (c Cluster) String() string {
	if c.Wildcard {
		return "*"
	}
	return string(c.Name)
}

// Errors of reading the cluster from a context. Both are programming errors of the server, never a client's fault.
var (
	ErrMissing  = errors.New("no logical cluster in context")
	ErrWildcard = errors.New("one logical cluster is needed, the context addresses all of them")
)

type contextKey struct{}

// WithCluster returns a context that addresses c.
func WithCluster(ctx context.Context, c Cluster) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// WithName returns a context that addresses the one cluster n.
func WithName(ctx context.Context, n Name) context.Context {
	return WithCluster(ctx, Cluster{Name: n})
}

// WithWildcard returns a context that addresses every cluster of the shard.
func WithWildcard(ctx context.Context) context.Context {
	return WithCluster(ctx, Cluster{Wildcard: true})
}

// From returns what ctx addresses; ok is false when nothing was set.
func From(ctx context.Context) (c Cluster, ok bool) {
	c, ok = ctx.Value(contextKey{}).(Cluster)
	return c, ok && (c.Wildcard || c.Name != "")
}

// NameFrom returns the one cluster that ctx addresses, or ErrMissing or ErrWildcard.
func NameFrom(ctx context.Context) (Name, error) {
	c, ok := From(ctx)
	switch {
	case !ok:
		return "", ErrMissing
	case c.Wildcard:
		return "", ErrWildcard
	}
	return c.Name, nil
}

// Of returns the cluster that obj was read from, empty if it did not come out of storage.
func Of(obj metav1.Object) Name { return Name(obj.GetAnnotations()[AnnotationKey]) }

// ValidPath reports whether s may stand behind /clusters/ in a URL: lower case DNS labels of any length, joined by colons. It is
// asked for every request: a regular expression takes twenty times as long.
func ValidPath(s string) bool {
	if len(s) > MaxPathLength {
		return false
	}
	between := true // labels, where only a letter or a digit may come
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			between = false
		case !between && c == ':' && s[i-1] != '-':
			between = true
		case between || c != '-':
			return false
		}
	}
	return !between && s[len(s)-1] != '-'
}
