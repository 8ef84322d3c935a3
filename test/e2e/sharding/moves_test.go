package sharding

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

var (
	migrations = schema.GroupVersionResource{Group: "migration.kcp.io", Version: "v1alpha1", Resource: "logicalclustermigrations"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// move creates the migration of a logical cluster to a shard, and returns its name.
func move(t *testing.T, cluster, shard string) (name string) {
	t.Helper()
	obj := migrationOf(t, cluster, shard)
	if _, err := root().Objects(t, migrations).Create(kcptest.Context(t), obj, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return obj.GetName()
}

// migrationOf returns a migration of a logical cluster to a shard.
func migrationOf(t *testing.T, cluster, shard string) *unstructured.Unstructured {
	t.Helper()
	return kcptest.Parse(t, fmt.Sprintf(`{apiVersion: migration.kcp.io/v1alpha1, kind: LogicalClusterMigration, metadata: {name: %s},
  spec: {logicalCluster: %s, destinationShard: %s}}`, "move-"+kcptest.Suffix(), cluster, shard))
}

// ended waits until a migration has ended with a phase, and returns its conditions.
func ended(t *testing.T, name, phase string) (conditions string) {
	t.Helper()
	kcptest.Eventually(t, "the migration has ended", func(ctx context.Context) error {
		obj, err := root().Objects(t, migrations).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status, _ := obj.Object["status"].(map[string]any)
		if status["phase"] != "Completed" && status["phase"] != "Failed" {
			return fmt.Errorf("its status is %v", status)
		}
		if status["phase"] != phase {
			t.Fatalf("the phase is not %s: %v", phase, status)
		}
		conditions = fmt.Sprint(status["conditions"])
		return nil
	})
	return conditions
}

// isOn checks the shard in the record of a workspace.
func isOn(t *testing.T, name, shard string) {
	t.Helper()
	if got := root().GetWorkspace(t, name).Annotations["core.kcp.io/shard"]; got != shard {
		t.Errorf("the record of workspace %s has shard %q, want %q", name, got, shard)
	}
}

// observer is a client that watches ConfigMaps as informers do.
type observer struct {
	what  string
	lists atomic.Int64
	stop  context.CancelFunc
	done  chan struct{}
}

// observe watches ConfigMaps, and fails the test if one is deleted.
func observe(t *testing.T, what string, objects dynamic.ResourceInterface) *observer {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	o := &observer{what: what, stop: stop, done: make(chan struct{})}
	listed := make(chan struct{})
	go func() {
		defer close(o.done)
		version := ""
		for ctx.Err() == nil {
			if version == "" {
				list, err := objects.List(ctx, metav1.ListOptions{})
				if err != nil {
					continue
				}
				if o.lists.Add(1) == 1 {
					close(listed)
				}
				version = list.GetResourceVersion()
			}
			w, err := objects.Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				version = ""
			}
			if err == nil {
				version = follow(t, what, w, version)
			}
		}
	}()
	t.Cleanup(o.end)
	<-listed
	return o
}

// follow returns the version from which a watch continues, empty after 410.
func follow(t *testing.T, what string, w watch.Interface, version string) string {
	defer w.Stop()
	for event := range w.ResultChan() {
		switch obj := event.Object.(type) {
		case *metav1.Status:
			if obj.Code == 410 {
				return ""
			}
			return version
		case *unstructured.Unstructured:
			version = obj.GetResourceVersion()
			if event.Type == watch.Deleted && strings.HasPrefix(obj.GetName(), "traffic-") {
				t.Errorf("%s: %s is deleted", what, obj.GetName())
			}
		}
	}
	return version
}

// hasListed returns when the objects were listed more often than before.
func (o *observer) hasListed(t *testing.T, before int64) {
	t.Helper()
	kcptest.Eventually(t, o.what+" has ended with the move", func(context.Context) error {
		if n := o.lists.Load(); n <= before {
			return fmt.Errorf("the objects were listed %d times, and %d times before", n, before)
		}
		return nil
	})
}

// end stops watching.
func (o *observer) end() {
	o.stop()
	<-o.done
}

// moved is a workspace that the tests move: with a definition, a bound API of a provider elsewhere, and a token of a service account.
type moved struct {
	name    string
	direct  *kcptest.Cluster
	through *kcptest.Cluster
	robot   kcptest.User
}

func settledToMove(t *testing.T, s, provider *sharded.Process) *moved {
	t.Helper()
	providerName, at := workspaceOn(t, provider)
	exporting(t, at)
	m := &moved{}
	m.name, m.direct = workspaceOn(t, s)
	m.through = through(0, "root:"+m.name)
	m.direct.Grant(t, kcptest.Alice, "edit")
	m.direct.Apply(t, definition)
	m.direct.WaitForDefinition(t, "books.example.org")
	m.direct.Kubectl(t, "create", "namespace", "demo")
	m.direct.Apply(t, book)
	binding := kcptest.BindingTo(kcptest.At("", nil).Named("root:"+providerName), "widgets")
	if _, err := m.direct.Objects(t, kcptest.APIBindings).Create(kcptest.Context(t), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitForStatus(t, m.direct.Objects(t, kcptest.APIBindings), "widgets", "Bound", "phase")
	if _, err := m.direct.Objects(t, widgets).Namespace("default").Create(kcptest.Context(t), widget(t, "first", 7), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	m.direct.Kubectl(t, "create", "clusterrolebinding", "robots", "--clusterrole=view", "--serviceaccount=default:default")
	token, err := m.direct.Kube(t, kcptest.Masters).CoreV1().ServiceAccounts("default").
		CreateToken(kcptest.Context(t), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.robot = kcptest.User{Name: "system:serviceaccount:default:default", Token: token.Status.Token}
	return m
}

// works checks that everything in the workspace is as before a move.
func (m *moved) works(t *testing.T) {
	t.Helper()
	kcptest.Eventually(t, "the service account reads with its token", func(ctx context.Context) error {
		_, err := m.through.Kube(t, m.robot).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		return err
	})
	kcptest.Eventually(t, "the definition is served", func(ctx context.Context) error {
		_, err := m.through.Objects(t, schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "books"}).
			Namespace("demo").Get(ctx, "first", metav1.GetOptions{})
		return err
	})
	objects := m.through.Objects(t, widgets).Namespace("default")
	kcptest.Eventually(t, "the bound API is served", func(ctx context.Context) error {
		_, err := objects.Get(ctx, "first", metav1.GetOptions{})
		return err
	})
	_, err := objects.Create(kcptest.Context(t), widget(t, "wrong", 101), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonInvalid)
}

func TestAWorkspaceMovesWhileItIsUsed(t *testing.T) {
	one, two := shard(t, "shard-1"), shard(t, "shard-2")
	m := settledToMove(t, one, installation.Root())
	r := begin(t, m.through, kcptest.Alice)
	own := observe(t, "a watch through the proxy", m.through.Dynamic(t, kcptest.Alice).Resource(configMaps).Namespace("default"))
	all := observe(t, "a watch of all clusters of the origin", one.Server().Named("*").Dynamic(t, kcptest.Masters).Resource(configMaps))
	for _, destination := range []string{two.Name, one.Name, two.Name} {
		r.proceed()
		began, ownLists, allLists := time.Now(), own.lists.Load(), all.lists.Load()
		ended(t, move(t, m.direct.Name, destination), "Completed")
		t.Logf("moved to %s in %s", destination, time.Since(began).Round(time.Millisecond))
		own.hasListed(t, ownLists)
		all.hasListed(t, allLists)
		isOn(t, m.name, destination)
		m.works(t)
	}
	gap, failures := r.finish()
	own.end()
	all.end()
	t.Logf("three moves: %d objects written, longest gap %s, %d failed requests", len(r.acknowledged), gap.Round(time.Millisecond), len(failures))
	for _, err := range failures[:min(len(failures), 3)] {
		t.Logf("failed: %v", err)
	}
}

// The provider of an API may be on the shard to which a consumer moves, and on the shard that it leaves.
func TestAConsumerMovesToItsProviderAndBack(t *testing.T) {
	one, two := shard(t, "shard-1"), shard(t, "shard-2")
	m := settledToMove(t, one, two)
	for _, destination := range []string{two.Name, one.Name, two.Name} {
		ended(t, move(t, m.direct.Name, destination), "Completed")
		isOn(t, m.name, destination)
		m.works(t)
	}
}

// The root shard has the Workspace: without the record in it, no shard may begin to serve what another one could serve.
func TestAMigrationContinuesAfterRestarts(t *testing.T) {
	one, two := shard(t, "shard-1"), shard(t, "shard-2")
	for _, crashed := range []*sharded.Process{two, one, installation.Root()} {
		t.Run(crashed.Name, func(t *testing.T) {
			name, at := workspaceOn(t, one)
			at.Grant(t, kcptest.Alice, "edit")
			r := begin(t, through(0, "root:"+name), kcptest.Alice)
			migration := move(t, at.Name, two.Name)
			kcptest.Eventually(t, "the migration has begun", func(ctx context.Context) error {
				origin, err := kcptest.StatusField(ctx, root().Objects(t, migrations), migration, "originShard")
				if err == nil && origin == "" {
					err = fmt.Errorf("it has no origin yet")
				}
				return err
			})
			if crashed == one { // a client repeats a request that a killed origin has executed, and gets 409
				stop(t, one)()
			} else {
				crashed.Kill()
				if err := crashed.Start(); err != nil {
					t.Fatal(err)
				}
			}
			ended(t, migration, "Completed")
			isOn(t, name, two.Name)
			gap, failures := r.finish()
			t.Logf("%s restarted: %d objects written, longest gap %s, %d failed requests", crashed.Name, len(r.acknowledged),
				gap.Round(time.Millisecond), len(failures))
		})
	}
}

func TestADeletedMigrationIsCanceled(t *testing.T) {
	one, two := shard(t, "shard-1"), shard(t, "shard-2")
	name, at := workspaceOn(t, one)
	start := stop(t, one)
	migration := move(t, at.Name, two.Name)
	kcptest.WaitForCondition(t, root().Objects(t, migrations), migration, "Completed", "False", "StepFailed")
	if err := root().Objects(t, migrations).Delete(kcptest.Context(t), migration, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitUntilGone(t, root().Objects(t, migrations), migration)
	start()
	isOn(t, name, one.Name)
	through(0, "root:"+name).Kubectl(t, "create", "configmap", "still", "--namespace=default")
}

func TestWhichMigrationsAreRefused(t *testing.T) {
	_, at := workspaceOn(t, shard(t, "shard-1"))
	for _, c := range []struct{ cluster, shard, want string }{
		{at.Name, "absent", `there is no shard "absent"`},
		{at.Name, "shard-1", `is on shard "shard-1" already`},
		{"absentabsentabse", "shard-2", `no shard holds logical cluster "absentabsentabse"`},
	} {
		if got := ended(t, move(t, c.cluster, c.shard), "Failed"); !strings.Contains(got, c.want) {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
	obj := kcptest.Parse(t, `{apiVersion: migration.kcp.io/v1alpha1, kind: LogicalClusterMigration, metadata: {name: root},
  spec: {logicalCluster: root, destinationShard: shard-1}}`)
	_, err := root().Objects(t, migrations).Create(kcptest.Context(t), obj, metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonInvalid)
}
