package command

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"encoding/pem"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcplane/kcp/cli/internal/fake"
)

// object is an object as its JSON has it.
type object = map[string]any

// installation is a fake server for two shards, root and west, which have the same URL with another host name each.
type installation struct {
	mu sync.Mutex
	// objects are the lists that the shards return, by <shard> <resource>.
	objects map[string][]object
	// quarantined are the shards in quarantine.
	quarantined bool
	// refuses is the shard at which the user may not list.
	refuses string
	changes []string
	url     string
}

func metadata(cluster, name, uid string, annotations object) object {
	all := object{"kcp.io/cluster": cluster}
	for key, value := range annotations {
		all[key] = value
	}
	return object{"name": name, "uid": uid, "annotations": all}
}

// start starts shards where Workspace org of root has cluster c1 on shard west.
func startShards(t *testing.T) (*installation, user) {
	t.Helper()
	i := &installation{objects: map[string][]object{
		"root workspaces":      {{"metadata": metadata("root", "org", "of org", object{"core.kcp.io/shard": "west"}), "spec": object{"cluster": "c1"}}},
		"root logicalclusters": {{"metadata": metadata("root", "cluster", "of root", nil)}},
		"west logicalclusters": {{
			"metadata": metadata("c1", "cluster", "uid-1", object{"kcp.io/path": "root:org"}),
			"spec":     object{"owner": object{"resource": "workspaces", "cluster": "root", "name": "org", "uid": "of org"}},
		}},
	}}
	server := httptest.NewTLSServer(http.HandlerFunc(i.serve))
	t.Cleanup(server.Close)
	i.url = server.URL
	config := clientcmdapi.NewConfig()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	config.Clusters["mine"] = &clientcmdapi.Cluster{Server: server.URL + "/clusters/root", CertificateAuthorityData: ca}
	config.Contexts["mine"] = &clientcmdapi.Context{Cluster: "mine"}
	config.CurrentContext = "mine"
	file := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return i, user{t, &fake.Server{}, file}
}

func (i *installation) serve(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	shard, path := "root", r.URL.Path
	if rest, west := strings.CutPrefix(path, "/west"); west {
		shard, path = "west", rest
	}
	parts := strings.Split(path, "/") // "", clusters, <cluster>, apis, <group>, <version>, <resource>, <name>
	answer := object{}
	switch {
	case r.Method != http.MethodGet:
		body, _ := io.ReadAll(r.Body)
		i.changes = append(i.changes, fmt.Sprintf("%s %s %s %s", r.Method, shard, path, body))
		if r.Method == http.MethodPost {
			_ = json.Unmarshal(body, &answer)
			answer["metadata"].(object)["uid"] = "of the adopter"
		}
	case parts[6] == "shards":
		annotations := object{}
		if i.quarantined {
			annotations["internal.core.kcp.io/quarantine"] = "store"
		}
		answer = object{"items": []object{
			{"metadata": object{"name": "root"}, "spec": object{"baseURL": i.url}},
			{"metadata": object{"name": "west", "annotations": annotations}, "spec": object{"baseURL": i.url + "/west"}},
		}}
	case parts[2] == "*" && shard == i.refuses:
		w.WriteHeader(http.StatusForbidden)
		answer = object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "alice cannot list"}
	case parts[2] == "*":
		answer = object{"items": i.objects[shard+" "+parts[6]]}
	default:
		for _, o := range i.objects[shard+" "+parts[6]] {
			if o["metadata"].(object)["annotations"].(object)["kcp.io/cluster"] == parts[2] {
				answer = o
			}
		}
		if len(answer) == 0 {
			w.WriteHeader(http.StatusNotFound)
			answer = object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
		}
	}
	if answer["kind"] == nil && len(parts) > 6 {
		answer["apiVersion"] = parts[4] + "/" + parts[5]
		answer["kind"] = map[string]string{"shards": "Shard", "workspaces": "Workspace", "logicalclusters": "LogicalCluster"}[parts[6]]
		if answer["items"] != nil {
			answer["kind"] = answer["kind"].(string) + "List"
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func TestShardsThatAgreeAreClean(t *testing.T) {
	i, me := startShards(t)
	i.quarantined = true
	me.prints("No conflicts: all logical clusters are where their Workspaces say.", "kcp", "check")
	me.prints("[]", "kcp", "check", "-o", "json")
	want := `PATCH root /clusters/root/apis/core.kcp.io/v1alpha1/shards/west {"metadata":{"annotations":{"internal.core.kcp.io/quarantine":null}}}`
	if len(i.changes) == 0 || i.changes[0] != want {
		t.Errorf("the changes are %q, want %q", i.changes, want)
	}
}

func TestAMissingPermissionIsNotReportedAsSilence(t *testing.T) {
	i, me := startShards(t)
	i.quarantined, i.refuses = true, "west"
	me.fails("1 findings", "kcp", "check", "--repair")
	stdout, _, _ := me.run("kcp", "check")
	if !strings.Contains(stdout, "Forbidden") || !strings.Contains(stdout, "alice cannot list") || strings.Contains(stdout, "Silent") {
		t.Errorf("got %s", stdout)
	}
	if len(i.changes) != 0 {
		t.Errorf("it changed %q", i.changes)
	}
}

func TestALostClusterIsReportedAndNothingIsChanged(t *testing.T) {
	i, me := startShards(t)
	i.quarantined = true
	i.objects["west logicalclusters"] = nil
	me.fails("1 findings", "kcp", "check", "--repair")
	stdout, _, _ := me.run("kcp", "check", "-o", "json")
	var found []map[string]string
	if err := json.Unmarshal([]byte(stdout), &found); err != nil || len(found) != 1 || found[0]["kind"] != "Lost" || found[0]["workspace"] != "root|org" {
		t.Errorf("got %s, %v", stdout, err)
	}
	if len(i.changes) != 0 {
		t.Errorf("it changed %q", i.changes)
	}
}

func TestARecordThatIsBehindIsRepaired(t *testing.T) {
	i, me := startShards(t)
	i.objects["west logicalclusters"][0]["metadata"].(object)["annotations"].(object)["internal.tenancy.kcp.io/epoch"] = "3"
	_, stderr, err := me.run("kcp", "check", "--repair") // the fake server does not apply it
	if err == nil || !strings.Contains(stderr, "Repaired the record of logical cluster c1") {
		t.Errorf("got %v, %s", err, stderr)
	}
	if len(i.changes) != 1 || !strings.Contains(i.changes[0], "PATCH root /clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/org") ||
		!strings.Contains(i.changes[0], `"internal.tenancy.kcp.io/epoch":"3"`) {
		t.Errorf("the changes are %q", i.changes)
	}
}

func TestAnOrphanIsAdoptedOrDeletedByItsUID(t *testing.T) {
	i, me := startShards(t)
	i.objects["root workspaces"] = nil
	stdout, _, err := me.run("kcp", "orphans")
	if err != nil || !strings.Contains(stdout, "uid-1") || !strings.Contains(stdout, "root|org") {
		t.Errorf("got %s, %v", stdout, err)
	}
	me.fails("no orphan has the UID", "kcp", "orphans", "--delete=other", "--yes")
	me.fails("not confirmed", "kcp", "orphans", "--delete=uid-1")
	if len(i.changes) != 0 {
		t.Fatalf("it changed %q", i.changes)
	}
	me.prints("Deleted logical cluster c1.", "kcp", "orphans", "--delete=uid-1", "--yes")
	me.prints("Adopted logical cluster c1.", "kcp", "orphans", "--adopt=uid-1", "--yes")
	for n, want := range []string{
		"DELETE west /clusters/c1/apis/core.kcp.io/v1alpha1/logicalclusters/cluster", "POST root /clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces",
		"PATCH west /clusters/c1/apis/core.kcp.io/v1alpha1/logicalclusters/cluster",
	} {
		if n >= len(i.changes) || !strings.HasPrefix(i.changes[n], want) {
			t.Errorf("the changes are %q, want %q", i.changes, want)
		}
	}
	if !strings.Contains(i.changes[0], `"uid":"uid-1"`) || !strings.Contains(i.changes[2], `"uid":"of the adopter"`) {
		t.Errorf("the UIDs are wrong in %q", i.changes)
	}
}
