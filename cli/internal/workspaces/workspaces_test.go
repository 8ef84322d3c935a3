package workspaces

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/cli/internal/fake"
	"github.com/kcplane/kcp/cli/internal/location"
)

const (
	initializing = corev1alpha1.LogicalClusterPhaseInitializing
	ready        = corev1alpha1.LogicalClusterPhaseReady
)

// connect returns a client of the server and the location of root.
func connect(t *testing.T, server *fake.Server) (*Client, location.Location) {
	t.Helper()
	client, err := New(&rest.Config{BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: server.CA()}})
	if err != nil {
		t.Fatal(err)
	}
	root, err := location.Parse(server.URL + "/clusters/root")
	if err != nil {
		t.Fatal(err)
	}
	return client, root
}

// await creates a workspace that is not ready, and returns the result of waiting for it and the states in between.
func await(t *testing.T, server *fake.Server, timeout time.Duration) (*tenancyv1alpha1.Workspace, []string, error) {
	t.Helper()
	server.Creating = func(ws *tenancyv1alpha1.Workspace) error {
		ws.Status.Phase = corev1alpha1.LogicalClusterPhaseScheduling
		return nil
	}
	client, root := connect(t, server)
	ws, err := client.Create(t.Context(), root, &tenancyv1alpha1.Workspace{
		TypeMeta:   metav1.TypeMeta{Kind: "Workspace", APIVersion: tenancyv1alpha1.SchemeGroupVersion.String()},
		ObjectMeta: metav1.ObjectMeta{Name: "new"}})
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	ws, err = client.WaitReady(t.Context(), root, ws, timeout, func(ws *tenancyv1alpha1.Workspace) { seen = append(seen, Describe(ws)) })
	return ws, seen, err
}

func TestWaitReadyFollowsTheWatch(t *testing.T) {
	server := fake.New(t)
	server.Watched = func(n int, ws *tenancyv1alpha1.Workspace) []fake.Event {
		states := []*tenancyv1alpha1.Workspace{fake.State(ws, initializing, "root:a", "root:b"), fake.State(ws, initializing, "root:b"), fake.State(ws, ready)}
		return []fake.Event{{Type: "MODIFIED", Object: states[min(n, 2)]}}
	}
	server.Hold = true
	ws, seen, err := await(t, server, time.Minute)
	if err != nil || ws.Status.Phase != ready {
		t.Fatalf("%v, %v", ws, err)
	}
	want := []string{"phase is Scheduling", "phase is Initializing, waiting for root:a, root:b", "phase is Initializing, waiting for root:b"}
	if !slices.Equal(seen, want) {
		t.Errorf("saw %q", seen)
	}
	if slices.Contains(server.Requests(), "GET /clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/new") {
		t.Errorf("want only watch requests, got %q", server.Requests())
	}
}

func TestWaitReadyRestartsWatches(t *testing.T) {
	server := fake.New(t)
	expired := apierrors.NewResourceExpired("too old").ErrStatus
	expired.Kind, expired.APIVersion = "Status", "v1"
	server.Watched = func(n int, ws *tenancyv1alpha1.Workspace) []fake.Event {
		switch n {
		case 0:
			return nil
		case 1:
			return []fake.Event{{Type: "ERROR", Object: expired}}
		case 2:
			return []fake.Event{{Type: "BOOKMARK", Object: fake.State(ws, ws.Status.Phase)}}
		}
		ws.Status.Phase, ws.ResourceVersion = ready, "99" // missed by the watch
		return nil
	}
	if ws, _, err := await(t, server, time.Minute); err != nil || ws.Status.Phase != ready {
		t.Errorf("%v, %v", ws, err)
	}
}

func TestWaitReadyErrors(t *testing.T) {
	for _, test := range []struct {
		name, want string
		timeout    time.Duration
		watched    func(ws *tenancyv1alpha1.Workspace) []fake.Event
	}{
		{"deleted", `workspace "new" in root was deleted while waiting`, time.Minute, func(ws *tenancyv1alpha1.Workspace) []fake.Event {
			return []fake.Event{{Type: "DELETED", Object: ws}}
		}},
		{"deleting", `workspace "new" in root is being deleted`, time.Minute, func(ws *tenancyv1alpha1.Workspace) []fake.Event {
			deleting := fake.State(ws, ready)
			deleting.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			return []fake.Event{{Type: "MODIFIED", Object: deleting}}
		}},
		{"replaced", `was deleted and created again`, time.Minute, func(ws *tenancyv1alpha1.Workspace) []fake.Event {
			other := fake.State(ws, ready)
			other.UID = "other"
			return []fake.Event{{Type: "MODIFIED", Object: other}}
		}},
		{"forbidden", `waiting for workspace "new" in root to be ready: `, time.Minute, func(*tenancyv1alpha1.Workspace) []fake.Event {
			status := apierrors.NewForbidden(tenancyv1alpha1.Resource("workspaces"), "", errors.New("no")).ErrStatus
			status.Kind, status.APIVersion = "Status", "v1"
			return []fake.Event{{Type: "ERROR", Object: status}}
		}},
		{"slow", `not ready after 300ms: phase is Unavailable, waiting for root:slow; Unschedulable: no shard`, 300 * time.Millisecond, func(ws *tenancyv1alpha1.Workspace) []fake.Event {
			slow := fake.State(ws, corev1alpha1.LogicalClusterPhaseUnavailable, "root:slow")
			slow.Status.Conditions = []corev1alpha1.Condition{{Type: "WorkspaceScheduled", Status: metav1.ConditionFalse, Reason: "Unschedulable", Message: "no shard"}}
			return []fake.Event{{Type: "MODIFIED", Object: slow}}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := fake.New(t)
			server.Hold = true
			server.Watched = func(n int, ws *tenancyv1alpha1.Workspace) []fake.Event {
				if n > 0 {
					return nil
				}
				return test.watched(ws)
			}
			if ws, _, err := await(t, server, test.timeout); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, %v; want %q", ws, err, test.want)
			}
		})
	}
}

func TestNotFoundErrorsListExistingWorkspaces(t *testing.T) {
	server := fake.New(t, "root:a", "root:a:b", "root:c", "root:closed", "root:closed:x")
	server.Forbidden["root:closed"] = true
	client, root := connect(t, server)
	for path, want := range map[string]string{
		"root:team-x":   `workspace "root:team-x" not found: the workspaces in root are a, c, closed`,
		"root:a:x":      `workspace "root:a:x" not found: the only workspace in root:a is b`,
		"root:a:b:x":    `workspace "root:a:b:x" not found: root:a:b has no workspaces`,
		"root:a:x:y:z":  `workspace "root:a:x:y:z" not found: the only workspace in root:a is b`,
		"root:closed:y": `workspace "root:closed:y" not found, and you may not list the workspaces of root:closed`,
		"root:closed":   `access to workspace "root:closed" denied: `,
		"nowhere":       `access to workspace "nowhere" denied, or there is no logical cluster with that name`,
	} {
		err := client.Verify(t.Context(), root.At(path))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
		if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			t.Errorf("%s: error has no cause: %v", path, err)
		}
		if apierrors.IsForbidden(err) {
			want = "you may not list the workspaces of " + path
		}
		if _, _, listed := client.Children(t.Context(), root.At(path), 0); listed == nil || !strings.HasPrefix(listed.Error(), want) {
			t.Errorf("listing %s: %v, want %q", path, listed, want)
		}
	}
}

func TestChildrenArePaged(t *testing.T) {
	var paths []string
	for _, letter := range "abcdefghijklmnop" {
		paths = append(paths, "root:"+string(letter))
	}
	client, root := connect(t, fake.New(t, paths...))
	for _, test := range []struct {
		limit, want int
		more        bool
	}{{0, 16, false}, {5, 5, true}, {6, 6, true}, {16, 16, false}, {20, 16, false}} {
		children, more, err := client.Children(t.Context(), root, test.limit)
		if err != nil || len(children) != test.want || more != test.more {
			t.Errorf("limit %d: %d workspaces, more %t, %v", test.limit, len(children), more, err)
		}
	}
	err := client.Verify(t.Context(), root.Child("absent"))
	if want := `workspace "root:absent" not found: the workspaces in root are a, b, c, d, e, f, g, h, i, j and more`; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestOtherServersAreRecognized(t *testing.T) {
	server := fake.New(t)
	server.Config.Handler = http.NotFoundHandler()
	client, root := connect(t, server)
	_, _, err := client.Children(t.Context(), root, 0)
	if err == nil || !strings.Contains(err.Error(), "is not a kcp server") {
		t.Error(err)
	}
	server.Close()
	if err := client.Verify(t.Context(), root); err == nil || !strings.HasPrefix(err.Error(), "cannot reach https://") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client.Verify(ctx, root); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestCanonicalReadsThePathOfALogicalCluster(t *testing.T) {
	server := fake.New(t, "root:a", "root:a:b")
	client, root := connect(t, server)
	for cluster, want := range map[string]string{
		"root:a": "root:a", server.Cluster("root:a:b"): "root:a:b", server.Cluster("root:a") + ":b": "root:a:b",
	} {
		if got, err := client.Canonical(t.Context(), root.At(cluster)); err != nil || got != root.At(want) {
			t.Errorf("%s is at %v, %v", cluster, got, err)
		}
	}
}
