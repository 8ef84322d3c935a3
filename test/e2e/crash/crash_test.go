// Package crash proves that workspaces which are created and deleted while the server is killed end up complete or gone,
// and leave nothing behind.
package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcplane/kcp/test/e2e/database"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// size is how much is done: an ordinary run, or one with KCP_CRASH=all.
type size struct{ kills, workspaces int }

var few, all = size{kills: 3, workspaces: 600}, size{kills: 20, workspaces: 10_000}

const clients = 12

// settleTimeout is how long everything may take until it is complete or gone. A logical cluster whose workspace was never
// stored waits for a minute, lest another server is still storing it.
const settleTimeout = 4 * time.Minute

// tenant is a workspace as its client knows it.
type tenant struct {
	name    string
	created bool // acknowledged
	deleted bool // acknowledged
	wanted  bool // the client went on to delete it
}

func TestWorkspacesAreCompleteOrGoneAfterKills(t *testing.T) {
	s := few
	if os.Getenv("KCP_CRASH") == "all" {
		s = all
	}
	dir := t.TempDir()
	server := kcptest.StartIn(t, dir)
	org := server.Named("root").CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("org", "", ""))
	var tenants []*tenant
	for kill := range s.kills {
		tenants = append(tenants, work(t, server, org.Name, kill, s)...)
		server = kcptest.RestartIn(t, dir, []kcptest.Probe{
			{User: kcptest.Masters, Path: "/clusters/root:org/apis/tenancy.kcp.io/v1alpha1/workspaces?limit=1"},
			{User: kcptest.Masters, Path: "/clusters/root:org/api/v1/namespaces/default"},
		})
	}
	wanted := settle(t, server, org.Name, tenants)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	created := 0
	for _, w := range tenants {
		if w.created {
			created++
		}
	}
	t.Logf("%d kills: %d workspaces acknowledged, %d left, none incomplete", s.kills, created, wanted)
	if created < s.workspaces/4 {
		t.Error("hardly anything was created: this proves nothing")
	}
	checkKeys(t, server.Root, wanted)
}

// work creates workspaces, enters some and deletes some, until the server is killed.
func work(t *testing.T, server *kcptest.Server, parent string, life int, s size) []*tenant {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	each := s.workspaces / s.kills / clients
	made := make([][]*tenant, clients)
	var running sync.WaitGroup
	for c := range clients {
		running.Go(func() {
			for i := range each {
				w := &tenant{name: fmt.Sprintf("w-%d-%d-%d", life, c, i)}
				made[c] = append(made[c], w)
				if !use(ctx, t, server, parent, w) {
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Duration(500+rand.IntN(2500)) * time.Millisecond):
	}
	server.Kill()
	end()
	<-done
	var tenants []*tenant
	for _, m := range made {
		tenants = append(tenants, m...)
	}
	return tenants
}

// use makes a workspace, and perhaps enters and deletes it. It returns false once the server is dead.
func use(ctx context.Context, t *testing.T, server *kcptest.Server, parent string, w *tenant) bool {
	workspaces := server.Named(parent).Dynamic(t, kcptest.Masters).Resource(kcptest.Workspaces)
	if _, err := workspaces.Create(ctx, kcptest.Workspace(w.name, "", ""), metav1.CreateOptions{}); err != nil {
		if refused(err) {
			t.Errorf("creating %s: %v", w.name, err)
		}
		return false
	}
	w.created = true
	if rand.IntN(3) == 0 {
		inside := server.Named(parent+":"+w.name).Kube(t, kcptest.Masters)
		if _, err := inside.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); err != nil {
			if refused(err) {
				t.Errorf("entering %s: %v", w.name, err)
			}
			return false
		}
	}
	if rand.IntN(2) == 0 {
		w.wanted = true
		if err := workspaces.Delete(ctx, w.name, metav1.DeleteOptions{}); err != nil {
			if refused(err) {
				t.Errorf("deleting %s: %v", w.name, err)
			}
			return false
		}
		w.deleted = true
	}
	return true
}

// refused tells whether the server has answered, and with a refusal.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code < 500
}

// settle waits until every workspace is complete or gone, as its client was told, and returns how many there are.
func settle(t *testing.T, server *kcptest.Server, parent string, tenants []*tenant) int {
	t.Helper()
	workspaces := server.Named(parent).Dynamic(t, kcptest.Masters).Resource(kcptest.Workspaces)
	clusters := server.Named("*").Dynamic(t, kcptest.Masters).Resource(kcptest.LogicalClusters)
	deadline := time.Now().Add(settleTimeout)
	for {
		there, err := unsettled(t, workspaces.List, clusters.List, tenants)
		if err == nil {
			return there
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", settleTimeout, err)
		}
		time.Sleep(time.Second)
	}
}

type lister func(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error)

// unsettled returns how many workspaces there are, and what is not yet as it should be.
func unsettled(t *testing.T, workspaces, clusters lister, tenants []*tenant) (int, error) {
	t.Helper()
	list, err := workspaces(t.Context(), metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	phases, owned := map[string]string{}, map[string]bool{}
	for _, w := range list.Items {
		phases[w.GetName()], _, _ = unstructured.NestedString(w.Object, "status", "phase")
		cluster, _, _ := unstructured.NestedString(w.Object, "spec", "cluster")
		owned[cluster] = true
	}
	for _, w := range tenants {
		phase, there := phases[w.name]
		switch {
		case w.created && !w.wanted && !there:
			t.Fatalf("workspace %s was created and is lost", w.name)
		case w.deleted && there:
			return 0, fmt.Errorf("workspace %s was deleted and is there, %s", w.name, phase)
		case there && phase != "Ready":
			return 0, fmt.Errorf("workspace %s is %s", w.name, phase)
		}
	}
	all, err := clusters(t.Context(), metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	found := 0
	for _, c := range all.Items {
		owner, _, _ := unstructured.NestedString(c.Object, "spec", "owner", "name")
		if cluster := c.GetAnnotations()["kcp.io/cluster"]; strings.HasPrefix(owner, "w-") {
			if found++; !owned[cluster] {
				return 0, fmt.Errorf("the logical cluster %s of workspace %s is an orphan", cluster, owner)
			}
		}
	}
	if found != len(list.Items) {
		return 0, fmt.Errorf("there are %d workspaces and %d logical clusters", len(list.Items), found)
	}
	return found, nil
}

// checkKeys opens the database of a server that has stopped: every key must belong to a logical cluster that exists.
func checkKeys(t *testing.T, root string, workspaces int) {
	t.Helper()
	client := database.Open(t, root)
	const prefix = "/registry/"
	found, err := client.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	const clusters = prefix + "core.kcp.io/logicalclusters/customresources/"
	for _, kv := range found.Kvs {
		if rest, ok := strings.CutPrefix(string(kv.Key), clusters); ok {
			exists[strings.TrimSuffix(rest, "/cluster")] = true
		}
	}
	if len(exists) < workspaces {
		t.Errorf("etcd holds %d logical clusters of %d workspaces", len(exists), workspaces)
	}
	for _, kv := range found.Kvs {
		// <group>/<resource>[/customresources]/<cluster>/…
		parts := strings.Split(strings.TrimPrefix(string(kv.Key), prefix), "/")
		if len(parts) > 2 && parts[2] == "customresources" {
			parts = parts[1:]
		}
		if len(parts) > 2 && !exists[parts[2]] && !strings.HasPrefix(parts[2], "system:") {
			t.Errorf("%s is of no logical cluster", kv.Key)
		}
	}
}
