package shard_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/settings"
	"github.com/kcplane/kcp/operator/internal/shard"
	"github.com/kcplane/kcp/operator/internal/workload"
)

func TestObjectsAreEqualToTheGoldenFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no input", err)
	}
	for _, file := range files {
		if file == furtherFile {
			continue // below
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			for name, objects := range build(t, read(t, file)) {
				operatortest.Golden(t, strings.TrimSuffix(file, ".yaml")+"."+name+".golden", objects)
			}
		})
	}
}

const furtherFile = "testdata/further.yaml"

// A further shard, and the root shard of its installation, with a cache server.
func TestShardsOfAnInstallationAreEqualToTheGoldenFiles(t *testing.T) {
	content, err := os.ReadFile(furtherFile)
	if err != nil {
		t.Fatal(err)
	}
	sh := &v1alpha1.Shard{}
	if err := yaml.UnmarshalStrict(content, sh); err != nil {
		t.Fatal(err)
	}
	rs := read(t, "testdata/smallest.yaml")
	cache := &shard.Cache{Issuer: "cache-cache-server-ca", Bundle: "cache-cache-server-merged-ca-bundle", URL: "https://cache:6443"}
	further, root := shard.Further(sh, rs), described(rs)
	further.Etcd = settings.Etcd{Endpoints: []string{string(sh.Spec.Etcd.Endpoints[0])}, Secret: "etcd-client", Prefix: sh.Spec.Etcd.Prefix}
	root.Sharded = true
	for name, s := range map[string]*shard.Shard{"further": further, "sharded-root": root} {
		s.Cache, s.Image = cache, "registry.example.com/kcp:v1"
		s.Inputs = map[string]string{shard.ServiceAccountInput: "5e", shard.ServerTrustInput: "7d"}
		_, authorities := shard.Authorities(s, nil)
		if !s.IsRoot() {
			authorities = nil
		}
		for part, objects := range map[string][]client.Object{"certificates": append(authorities, shard.Leaves(s)...), "workload": workloads(t, s)} {
			operatortest.Golden(t, "testdata/"+name+"."+part+".golden", objects)
		}
	}
}

func read(t *testing.T, file string) *v1alpha1.RootShard {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rs := &v1alpha1.RootShard{}
	if err := yaml.UnmarshalStrict(content, rs); err != nil {
		t.Fatal(err)
	}
	return rs
}

// described returns a root shard with all data that a reconciler reads.
func described(rs *v1alpha1.RootShard) *shard.Shard {
	s := shard.Root(rs)
	s.Image = "registry.example.com/kcp:v1"
	for _, endpoint := range rs.Spec.Etcd.Endpoints {
		s.Etcd.Endpoints = append(s.Etcd.Endpoints, string(endpoint))
	}
	s.Etcd.Prefix = rs.Spec.Etcd.Prefix
	if config := rs.Spec.Etcd.TLSConfig; config != nil {
		s.Etcd.Secret = config.SecretRef.Name
	}
	s.Inputs = map[string]string{shard.ServiceAccountInput: "5e"}
	for _, ref := range shard.References(s) {
		if len(ref.Hashed()) > 0 {
			s.Inputs[ref.Input()] = "0f"
		}
	}
	return s
}

func build(t *testing.T, rs *v1alpha1.RootShard) map[string][]client.Object {
	t.Helper()
	s := described(rs)
	issuers, authorities := shard.Authorities(s, rs.Spec.Certificates)
	return map[string][]client.Object{"certificates": slices.Concat(issuers, authorities, shard.Leaves(s)), "workload": workloads(t, s)}
}

// workloads builds the objects that run a shard.
func workloads(t *testing.T, s *shard.Shard) []client.Object {
	t.Helper()
	c := shard.Component(s)
	set, err := workload.StatefulSet(c)
	if err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{workload.Service(c), set}
	if pdb, wanted := workload.PodDisruptionBudget(c); wanted {
		objects = append(objects, pdb)
	}
	if policy, wanted := workload.NetworkPolicy(c); wanted {
		objects = append(objects, policy)
	}
	if monitor, wanted := workload.ServiceMonitor(c); wanted {
		objects = append(objects, monitor)
	}
	return objects
}
