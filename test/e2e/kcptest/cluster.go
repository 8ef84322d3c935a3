package kcptest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// Timeout limits how long Eventually waits. What it waits for usually happens at once.
const Timeout = 30 * time.Second

// LogicalClusters is the resource of LogicalCluster.
var LogicalClusters = schema.GroupVersionResource{Group: "core.kcp.io", Version: "v1alpha1", Resource: "logicalclusters"}

// Cluster is a logical cluster of a server.
type Cluster struct {
	// Name is the name or path in its URL, after /clusters/.
	Name   string
	server *Server
}

// Cluster creates a logical cluster for one test, and waits until it is ready.
func (s *Server) Cluster(t testing.TB) *Cluster {
	t.Helper()
	c := s.Named("test" + Suffix())
	if s.installed != nil {
		c = s.clusterOnShard(t)
	} else {
		c.createLogicalCluster(t)
	}
	Eventually(t, "the namespace default exists", func(ctx context.Context) error {
		_, err := c.Kube(t, Masters).CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return c
}

// createLogicalCluster creates a logical cluster that is no workspace, and waits until it is ready.
func (c *Cluster) createLogicalCluster(t testing.TB) {
	t.Helper()
	ctx := Context(t)
	logicalClusters := c.Dynamic(t, Masters).Resource(LogicalClusters)
	_, err := logicalClusters.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster",
		"metadata": map[string]any{"name": corev1alpha1.LogicalClusterName},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating the logical cluster %s: %v", c.Name, err)
	}
	Eventually(t, "the logical cluster is ready", func(ctx context.Context) error {
		object, err := logicalClusters.Get(ctx, corev1alpha1.LogicalClusterName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if phase, _, _ := unstructured.NestedString(object.Object, "status", "phase"); phase != string(corev1alpha1.LogicalClusterPhaseReady) {
			return fmt.Errorf("phase is %q", phase)
		}
		return nil
	})
}

// Named returns the logical cluster with that name or path, which need not exist.
func (s *Server) Named(name string) *Cluster { return &Cluster{Name: name, server: s} }

// URL returns the URL of the cluster for Kubernetes clients.
func (c *Cluster) URL() string { return c.server.URL + "/clusters/" + c.Name }

// Config returns the configuration of a client of user for the cluster.
func (c *Cluster) Config(user User) *rest.Config {
	return c.server.At(user, "/clusters/"+c.Name)
}

// Kube returns a client of user for built-in types.
func (c *Cluster) Kube(t testing.TB, user User) kubernetes.Interface {
	t.Helper()
	return must[kubernetes.Interface](t)(kubernetes.NewForConfigAndClient(c.Config(user), c.server.client(t, user)))
}

// Dynamic returns a client of user for every type.
func (c *Cluster) Dynamic(t testing.TB, user User) dynamic.Interface {
	t.Helper()
	return must[dynamic.Interface](t)(dynamic.NewForConfigAndClient(c.Config(user), c.server.client(t, user)))
}

// Definitions returns a client of user for CustomResourceDefinitions.
func (c *Cluster) Definitions(t testing.TB, user User) apiextensions.Interface {
	t.Helper()
	return must[apiextensions.Interface](t)(apiextensions.NewForConfigAndClient(c.Config(user), c.server.client(t, user)))
}

// Define creates a CustomResourceDefinition and waits until its resource is served.
func (c *Cluster) Define(t testing.TB, definition *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	definitions := c.Definitions(t, Masters).ApiextensionsV1().CustomResourceDefinitions()
	if _, err := definitions.Create(Context(t), definition.DeepCopy(), metav1.CreateOptions{}); err != nil {
		t.Fatalf("creating the definition %s: %v", definition.Name, err)
	}
	c.WaitForDefinition(t, definition.Name)
}

// WaitForDefinition waits until the resource of a definition is served.
func (c *Cluster) WaitForDefinition(t testing.TB, name string) {
	t.Helper()
	definitions := c.Definitions(t, Masters).ApiextensionsV1().CustomResourceDefinitions()
	Eventually(t, "the definition "+name+" is established", func(ctx context.Context) error {
		definition, err := definitions.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range definition.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("conditions are %v", definition.Status.Conditions)
	})
}

// EntryRole is the ClusterRole that permits a user to enter a cluster.
const EntryRole = "system:kcp:workspace:access"

// Grant permits user to enter the cluster, binds them to a ClusterRole that permits at least reading ConfigMaps, and waits until this
// takes effect.
func (c *Cluster) Grant(t testing.TB, user User, role string) {
	t.Helper()
	for _, r := range []string{EntryRole, role} {
		c.Kubectl(t, "create", "clusterrolebinding", user.Name+"-"+strings.ReplaceAll(r, ":", "-"), "--clusterrole="+r, "--user="+user.Name)
	}
	Eventually(t, user.Name+" has permissions in "+c.Name, func(ctx context.Context) error {
		_, err := c.Kube(t, user).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		return err
	})
}

// Context returns a context that ends shortly before the deadline of the test.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 4*Timeout)
	t.Cleanup(cancel)
	return ctx
}

// Eventually calls check until it returns nil. If this takes too long, it fails the test with the last error of check.
func Eventually(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	EventuallyWithin(t, Timeout, what, check)
}

// EventuallyWithin is Eventually for what takes longer, for example because a program of others does it only once in a minute.
func EventuallyWithin(t testing.TB, limit time.Duration, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	ticker := time.NewTicker(limit / 1000)
	defer ticker.Stop()
	for last := error(nil); ; {
		err := check(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil || last == nil {
			last = err // not the error of the context's end
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not true after %s: %s: %v", limit, what, last)
		case <-ticker.C:
		}
	}
}

// Gone converts the result of a get for Eventually: it returns nil if the object, or its workspace, is not found.
func Gone(err error) error {
	if err == nil {
		return fmt.Errorf("the object still exists")
	}
	if apierrors.IsNotFound(err) || IsNoWorkspace(err) {
		return nil
	}
	return err
}

// IsNoWorkspace reports whether an error is that for a workspace that does not exist. A shard says so; a front proxy refuses access.
func IsNoWorkspace(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	if details := status.Status().Details; details.Group != Workspaces.Group || details.Kind != Workspaces.Resource {
		return false
	}
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) && strings.Contains(err.Error(), "workspace access not permitted")
}

func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// KubeAtServer returns a client of user whose URL names no cluster, like the clients of programs in pods.
func (c *Cluster) KubeAtServer(t testing.TB, user User) kubernetes.Interface {
	t.Helper()
	return must[kubernetes.Interface](t)(kubernetes.NewForConfigAndClient(c.server.Config(user), c.server.client(t, user)))
}

// Metadata returns a client of user for the metadata of every type.
func (c *Cluster) Metadata(t testing.TB, user User) metadata.Interface {
	t.Helper()
	return must[metadata.Interface](t)(metadata.NewForConfigAndClient(c.Config(user), c.server.client(t, user)))
}
