package kcptest

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
)

const (
	// rootPath is the path of the parent of the workspaces that tests create.
	rootPath = "root"
	// workspaceTimeout limits the time until a workspace is ready.
	workspaceTimeout = time.Minute
)

// Workspace is a workspace that belongs to a test.
type Workspace struct {
	// Path is the path of the workspace, such as root:test-x7k2p.
	Path string
	// Cluster is the name of its logical cluster, which is also in the annotation kcp.io/cluster of its objects.
	Cluster string
	// Config is the configuration of clients with all permissions in the workspace.
	Config *rest.Config

	server *Server
}

// Workspace creates a workspace below root, and returns when it is ready. It deletes the workspace when the test ends. Options change the
// workspace before it is created, for example its type.
func (s *Server) Workspace(t testing.TB, options ...func(*tenancyv1alpha1.Workspace)) *Workspace {
	t.Helper()
	return s.create(t, rootPath, options)
}

// Workspace creates a workspace below w, as Server.Workspace does below root.
func (w *Workspace) Workspace(t testing.TB, options ...func(*tenancyv1alpha1.Workspace)) *Workspace {
	t.Helper()
	return w.server.create(t, w.Path, options)
}

func (s *Server) create(t testing.TB, parent string, options []func(*tenancyv1alpha1.Workspace)) *Workspace {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := tenancyv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(s.Config(parent), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatalf("creating a client of workspace %s: %v", parent, err)
	}
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	for _, option := range options {
		option(workspace)
	}
	ctx, cancel := context.WithTimeout(t.Context(), workspaceTimeout)
	defer cancel()
	if err := c.Create(ctx, workspace); err != nil {
		t.Fatalf("creating a workspace in %s: %v", parent, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), workspaceTimeout)
		defer cancel()
		if err := client.IgnoreNotFound(c.Delete(ctx, workspace)); err != nil {
			t.Errorf("deleting workspace %s in %s: %v", workspace.Name, parent, err)
		}
	})
	err = s.poll(ctx, func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(workspace), workspace); err != nil {
			return err
		}
		if workspace.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
			return fmt.Errorf("phase is %q, conditions are %v", workspace.Status.Phase, workspace.Status.Conditions)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("waiting for workspace %s in %s: %v", workspace.Name, parent, err)
	}
	path := parent + ":" + workspace.Name
	return &Workspace{Path: path, Cluster: workspace.Spec.Cluster, Config: s.Config(path), server: s}
}
