package logicalcluster

import (
	"context"
	"errors"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// AnnotationKey is the annotation with the logical cluster of every object.
const AnnotationKey = corev1alpha1.ClusterAnnotation

// UserExtraKey is the key of a user's extra value with the logical cluster of a service account, or of the issuer that authenticated the
// user.
const UserExtraKey = "authentication.kcp.io/cluster-name"

// Name identifies one logical cluster: 16 characters of base36 for a workspace, or one of the names below.
type Name string

// Logical clusters that exist in every installation.
const (
	// Root is the top of the tree of workspaces.
	Root Name = "root"
	// Homes contains the Workspaces of the homes of users, if an installation has several shards. It is on the root shard.
	Homes Name = "homes"
	// SystemAdmin holds the bootstrap policy and the leases of controllers. Requests of shard administrators without a
	// cluster are served here.
	SystemAdmin Name = "system:admin"
	// SystemCRDs contains the definitions that every cluster serves.
	SystemCRDs Name = "system:system-crds"
	// SystemBoundCRDs contains the definitions of bound APIs.
	SystemBoundCRDs Name = "system:bound-crds"
)

// TerminatingCause is the cause in errors for creating an object in a logical cluster that is being deleted.
const TerminatingCause metav1.CauseType = "LogicalClusterTerminating"

// systemPrefix is the prefix of names that are not available for workspaces.
const systemPrefix = "system:"

// MaxPathLength limits the bytes of a path or name in a URL.
const MaxPathLength = 512

// IsSystem reports whether n is a system cluster of the server.
func (n Name) IsSystem() bool { return strings.HasPrefix(string(n), systemPrefix) }

func (n Name) String() string { return string(n) }

// Cluster is the target of a request: one logical cluster, or all of them.
type Cluster struct {
	// Name is empty for a wildcard.
	Name Name
	// Wildcard means all logical clusters of the shard. Only privileged identities may use it, for reads.
	Wildcard bool
}

func (c Cluster) String() string {
	if c.Wildcard {
		return "*"
	}
	return string(c.Name)
}

// Errors of reading the cluster from a context. Both are programming errors of the server, never errors of a client.
var (
	ErrMissing  = errors.New("no logical cluster in context")
	ErrWildcard = errors.New("one logical cluster is needed, the context addresses all of them")
)

type contextKey struct{}

// WithCluster returns a context with target c.
func WithCluster(ctx context.Context, c Cluster) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// WithName returns a context with the single cluster n as target.
func WithName(ctx context.Context, n Name) context.Context {
	return WithCluster(ctx, Cluster{Name: n})
}

// WithWildcard returns a context with all clusters of the shard as target.
func WithWildcard(ctx context.Context) context.Context {
	return WithCluster(ctx, Cluster{Wildcard: true})
}

// From returns the target of ctx; ok is false if none is set.
func From(ctx context.Context) (c Cluster, ok bool) {
	c, ok = ctx.Value(contextKey{}).(Cluster)
	return c, ok && (c.Wildcard || c.Name != "")
}

// NameFrom returns the single cluster of ctx, or ErrMissing or ErrWildcard.
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

// Of returns the cluster from which obj was read; empty if obj was not read from storage.
func Of(obj metav1.Object) Name { return Name(obj.GetAnnotations()[AnnotationKey]) }

// ValidPath reports whether s is valid after /clusters/ in a URL: lower case DNS labels of any length, separated by colons. It
// is called for every request; a regular expression takes twenty times as long.
func ValidPath(s string) bool {
	if len(s) > MaxPathLength {
		return false
	}
	between := true // at the start of a label, where only a letter or a digit is valid
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
