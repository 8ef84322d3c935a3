// Package crash tests that workspaces which are created and deleted while the server is killed become complete or are deleted, with all
// their data.
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

// size is the size of an ordinary run, or of one with KCP_CRASH=all.
type size struct{ kills, workspaces int }

var few, all = size{kills: 3, workspaces: 600}, size{kills: 20, workspaces: 10_000}

const clients = 12

// settleTimeout limits the time until every workspace is complete or deleted. A logical cluster without a stored workspace is only
// deleted after a minute, because another server may still be storing the workspace.
const settleTimeout = 4 * time.Minute

// tenant is a workspace in the view of its client.
type tenant struct {
	name     string
	created  bool // acknowledged
	deleted  bool // acknowledged
	deleting bool // the client has sent a deletion
}

func TestWorkspacesAreCompleteOrDeletedAfterKills(t *testing.T) {
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
	t.Logf("%d kills: %d workspaces acknowledged, %d remain, none incomplete", s.kills, created, wanted)
	if created < s.workspaces/4 {
		t.Error("too few workspaces were created for this test")
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

// use creates a workspace, and possibly enters and deletes it. It returns false when the server has been killed.
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
		w.deleting = true
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

// refused reports whether the server responded with a refusal.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code < 500
}

// settle waits until every workspace is complete or deleted, as acknowledged to its client, and returns the number of workspaces.
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

// unsettled returns the number of workspaces, and an error that describes an incomplete one.
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
		case w.created && !w.deleting && !there:
			t.Fatalf("workspace %s was created and does not exist", w.name)
		case w.deleted && there:
			return 0, fmt.Errorf("workspace %s was deleted and exists with phase %s", w.name, phase)
		case there && phase != "Ready":
			return 0, fmt.Errorf("workspace %s has phase %s", w.name, phase)
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
		return 0, fmt.Errorf("got %d workspaces and %d logical clusters", len(list.Items), found)
	}
	return found, nil
}

// checkKeys opens the database of a stopped server: every key must belong to an existing logical cluster.
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
		t.Errorf("etcd has %d logical clusters for %d workspaces", len(exists), workspaces)
	}
	for _, kv := range found.Kvs {
		// <group>/<resource>[/customresources]/<cluster>/…
		parts := strings.Split(strings.TrimPrefix(string(kv.Key), prefix), "/")
		if len(parts) > 2 && parts[2] == "customresources" {
			parts = parts[1:]
		}
		if len(parts) > 2 && !exists[parts[2]] && !strings.HasPrefix(parts[2], "system:") {
			t.Errorf("key %s belongs to no logical cluster", kv.Key)
		}
	}
}
