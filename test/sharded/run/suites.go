package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kcplane/kcp/test/sharded"
)

// suite is a package of end-to-end tests.
type suite struct {
	// name is that of a directory of test/e2e.
	name string
	// chosen reports that CI runs the tests against an installation of several shards.
	chosen bool
	// alone is why the package runs with one shard only; empty if it runs against an installation.
	alone string
	// except are tests of a package that assume one shard, with the reason.
	except map[string]string
}

// Reasons for exceptions.
const (
	wildcard = "sends requests for all logical clusters, which a front proxy refuses: they are for one shard"
	own      = "reads a cluster in which each shard keeps its own objects"
	view     = "reads all logical clusters of a view at one URL; there is one for each shard"
	other    = "starts a server of its own"
)

// suites are all packages of test/e2e. Those that are chosen take two minutes together.
var suites = []suite{
	{name: "admission", chosen: true},
	{name: "apis", chosen: true},
	{name: "controllers", chosen: true, except: map[string]string{
		"TestAllObjectsAreDeletedWithLogicalCluster": wildcard,
	}},
	{name: "inactive", chosen: true, except: map[string]string{
		"TestWatchesEndWhenClusterBecomesInactive": wildcard,
		"TestInactiveClusterCanBeDeleted":          wildcard,
	}},
	{name: "isolation", chosen: true, except: map[string]string{
		"TestMissingClusterStoresNoObjects":    wildcard,
		"TestWildcardIsOnlyForPrivilegedUsers": wildcard,
		"TestRefusalsMatchDocumentation":       "has the answers of a shard whose root no other test changes",
	}},
	{name: "workspaces", chosen: true},
	{name: "api", except: map[string]string{
		"TestEveryClusterHasDefaultClusterRoles":                wildcard,
		"TestClientCertificatesAreRefusedAfterClusterIsDeleted": "uses a certificate on another shard, which does not know the cluster",
		"TestEveryErrorIsAStatus":                               "has the answers of a shard; front proxies refuse access to what is absent",
	}},
	{name: "compatibility"},
	{name: "conformance"},
	{name: "customresources", except: map[string]string{
		"TestWildcardListsCustomResourcesAsMetadata": wildcard,
	}},
	{name: "definitions"},
	{name: "ecosystem"},
	{name: "apisharing", chosen: true, except: map[string]string{
		"TestProviderCanClaimWorkspaces":                           wildcard,
		"TestProvidersOfSameResourceAreSeparate":                   wildcard,
		"TestWorkspaceWithoutRequestsStoresNoBinding":              wildcard,
		"TestReadingSchemasRequiresPermissionToReadBindings":       own,
		"TestUnusedSchemaIsKeptForAWhile":                          own,
		"TestViewOfRootContainsAllWorkspaces":                      view,
		"TestEndpointSliceOfExportWithPartitionListsOnlyItsShards": "expects the endpoint of one shard, which all consumers are on",
	}},
	{name: "cachedresources"},
	{name: "property"},
	{name: "virtualworkspaces", except: map[string]string{
		"TestViewOfAllClustersRequiresPermission":                wildcard,
		"TestMountedWorkspaceServesViewForItsUsers":              other,
		"TestAProcessOfItsOwnServesTheVirtualWorkspacesOfAShard": other,
		"TestConsumersReadObjectsFromViewOfProvider":             other,
		"TestProvidersCannotRedirectServer":                      other,
	}},

	{name: "abuse", alone: "measures one process; make abuse-sharded attacks an installation"},
	{name: "crash", alone: "kills the server"},
	{name: "database", alone: "reads the etcd of the server"},
	{name: "durability", alone: "kills the server"},
	{name: "faults", alone: "starts servers with faults in their etcd"},
	{name: "fleet", alone: "expects the endpoint of one shard, which all consumers are on"},
	{name: "host", alone: "needs a host cluster"},
	{name: "idle", alone: "counts goroutines and watches of one process"},
	{name: "kcptest", alone: "has no tests"},
	{name: "leaderelection", alone: "starts replicas of one shard"},
	{name: "lifecycle", alone: "starts and stops servers"},
	{name: "mounts", alone: "starts a server that may reach the mounted host"},
	{name: "objectlimit", alone: "starts a server with low limits"},
	{name: "observability", alone: "reads the log and the metrics of one process"},
	{name: "raw", alone: "sends requests that HTTP servers refuse before they are forwarded"},
	{name: "security", alone: "starts servers with own etcd and certificates"},
	{name: "sharding", alone: "starts an installation itself"},
	{name: "tutorial", alone: "runs the documentation of one server"},
	{name: "vanilla", alone: "compares one process with a kube-apiserver"},
}

// suiteFlags are the flags of shards for the suites: children are on other shards than their parents.
var suiteFlags = []string{"--workspace-placement=spread"}

// selected returns the suites for the value of -suites: chosen, all, or names.
func selected(value string) ([]suite, error) {
	switch value {
	case "all":
		return filtered(func(s suite) bool { return s.alone == "" }), nil
	case "chosen":
		return filtered(func(s suite) bool { return s.chosen }), nil
	}
	names := strings.Split(value, ",")
	found := filtered(func(s suite) bool { return slices.Contains(names, s.name) && s.alone == "" })
	if len(found) != len(names) {
		return nil, fmt.Errorf("-suites=%s: must be chosen, all, or names of suites that run against an installation", value)
	}
	return found, nil
}

func filtered(keep func(suite) bool) (kept []suite) {
	for _, s := range suites {
		if keep(s) {
			kept = append(kept, s)
		}
	}
	return kept
}

// testCommand returns the command that runs suites. Further arguments are those of go test, such as -run=TestX.
func testCommand(run []suite, further []string) []string {
	command := []string{"go", "test", "-count=1", "-timeout=20m"}
	var except []string
	for _, s := range run {
		for name := range s.except {
			except = append(except, name)
		}
	}
	if slices.Sort(except); len(except) > 0 {
		command = append(command, "-skip=^("+strings.Join(except, "|")+")$")
	}
	command = append(command, further...)
	for _, s := range run {
		command = append(command, "./test/e2e/"+s.name)
	}
	return command
}

// forSuites returns the options of an installation for suites: two more shards, a cache server and two front proxies.
func forSuites() sharded.Options {
	return sharded.Options{Shards: 2, Cache: true, Proxies: 2, ShardFlags: suiteFlags}
}
