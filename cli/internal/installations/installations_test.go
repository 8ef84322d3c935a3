package installations

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"
)

// objects parses YAML documents.
func objects(t *testing.T, documents string) (all []runtime.Object) {
	t.Helper()
	for document := range strings.SplitSeq(documents, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		if o.GetNamespace() == "" && o.GetKind() != "StorageClass" {
			o.SetNamespace("team")
		}
		all = append(all, o)
	}
	return all
}

// clusterWith returns a client of a cluster with objects.
func clusterWith(t *testing.T, documents string) (*Client, *fake.FakeDynamicClient, *fakediscovery.FakeDiscovery) {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{
		{Version: "v1", Resource: "secrets"}:                                                 "SecretList",
		{Version: "v1", Resource: "pods"}:                                                    "PodList",
		{Group: "events.k8s.io", Version: "v1", Resource: "events"}:                          "EventList",
		{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}:                 "StorageClassList",
		{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}: "SelfSubjectAccessReviewList",
	}
	for _, k := range kinds {
		lists[schema.GroupVersionResource{Group: "operator.kcp.io", Version: "v1alpha1", Resource: k.resource}] = k.kind + "List"
	}
	for _, resource := range others {
		lists[resource] = "AnyList"
	}
	dynamic := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects(t, documents)...)
	known := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}, FakedServerVersion: &version.Info{GitVersion: "v1.34.2"}}
	return &Client{Objects: dynamic, Discovery: known, Logs: func(context.Context, string, string, string, bool, int64) ([]byte, error) {
		return nil, errors.New("no log")
	}}, dynamic, known
}

const example = `apiVersion: operator.kcp.io/v1alpha1
kind: RootShard
metadata: {name: main}
spec: {cache: {ref: {name: cache}}, etcd: {managed: {}}, external: {hostname: kcp.example.com, port: 443}}
status:
  version: 1.2.0
  pods: 2/2
  url: https://kcp.example.com
  phase: Running
  certificates: [{name: late, notAfter: "2027-02-01T00:00:00Z"}, {name: early, notAfter: "2027-01-01T00:00:00Z"}]
  conditions: [{type: Ready, status: "True"}, {type: CertificatesExpiring, status: "True", reason: NotRenewed, message: early expires}]
---
apiVersion: operator.kcp.io/v1alpha1
kind: CacheServer
metadata: {name: cache}
status: {phase: Running, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: operator.kcp.io/v1alpha1
kind: CacheServer
metadata: {name: unused}
---
apiVersion: operator.kcp.io/v1alpha1
kind: Shard
metadata: {name: west}
spec: {rootShard: {ref: {name: main}}}
status:
  phase: Provisioning
  logicalClusters: 12
  conditions:
  - {type: Ready, status: "False", reason: NotResponding, message: "no route: check the Service"}
  - {type: Drained, status: "False", reason: NoDestination, message: add a Shard}
---
apiVersion: operator.kcp.io/v1alpha1
kind: Shard
metadata: {name: elsewhere}
spec: {rootShard: {ref: {name: other}}}
---
apiVersion: operator.kcp.io/v1alpha1
kind: VirtualWorkspace
metadata: {name: views}
spec: {target: {shardRef: {name: west}}}
---
apiVersion: operator.kcp.io/v1alpha1
kind: FrontProxy
metadata: {name: public}
spec: {rootShard: {ref: {name: main}}}
status: {url: "https://public.example.com", conditions: [{type: Ready, status: "True"}]}
---
apiVersion: operator.kcp.io/v1alpha1
kind: EtcdCluster
metadata: {name: main-etcd, ownerReferences: [{apiVersion: operator.kcp.io/v1alpha1, kind: RootShard, name: main, uid: a, controller: true}]}
status:
  currentVersion: 3.6.1
  readyMembers: 2/3
  conditions: [{type: Ready, status: "True"}, {type: Degraded, status: "True", reason: MemberUnhealthy, message: member 2 is replaced}]
  members: [{name: main-etcd-0, isLeader: true, ready: true}, {name: main-etcd-1, isLearner: true}]
---
apiVersion: operator.kcp.io/v1alpha1
kind: EtcdCluster
metadata: {name: west-etcd, ownerReferences: [{apiVersion: operator.kcp.io/v1alpha1, kind: Shard, name: west, uid: b, controller: true}]}
status: {conditions: [{type: Ready, status: "True"}]}
---
apiVersion: operator.kcp.io/v1alpha1
kind: EtcdBackup
metadata: {name: first}
spec: {cluster: main-etcd}
status: {completedAt: "2026-11-02T00:00:00Z", snapshot: {}}
---
apiVersion: operator.kcp.io/v1alpha1
kind: EtcdBackup
metadata: {name: failed}
spec: {cluster: main-etcd}
status: {completedAt: "2026-11-03T00:00:00Z"}
---
apiVersion: operator.kcp.io/v1alpha1
kind: EtcdBackupSchedule
metadata: {name: daily}
spec: {cluster: main-etcd, schedule: "@daily", suspend: true}
status: {lastSuccess: "2026-11-01T00:00:00Z", conditions: [{type: Ready, status: "True"}]}`

func TestTheStatusHasAllComponentsOfAnInstallation(t *testing.T) {
	c, _, _ := clusterWith(t, example)
	o, err := c.Read(t.Context(), "team")
	if err != nil {
		t.Fatal(err)
	}
	all := Summarize("team", "main", o)
	if len(all) != 1 || all[0].Ready || all[0].URL != "https://public.example.com" {
		t.Fatalf("got %+v", all)
	}
	var components, members, waiting []string
	for _, m := range all[0].Components {
		components = append(components, fmt.Sprintf("%s/%s %s", m.Kind, m.Name, m.State()))
	}
	for _, m := range all[0].Members {
		members = append(members, m.Name+" "+m.Role())
	}
	for _, w := range all[0].Waiting {
		waiting = append(waiting, w.Kind+"/"+w.Name+" "+w.Reason)
	}
	for _, test := range []struct {
		got  []string
		want string
	}{
		{components, "CacheServer/cache Ready, RootShard/main Ready, Shard/west Provisioning, VirtualWorkspace/views Unknown, " +
			"FrontProxy/public Ready, EtcdCluster/main-etcd Ready, EtcdCluster/west-etcd Ready"},
		{members, "main-etcd-0 leader, main-etcd-1 learner"},
		{waiting, "RootShard/main NotRenewed, Shard/west NotResponding, Shard/west NoDestination, VirtualWorkspace/views Unknown, " +
			"EtcdCluster/main-etcd MemberUnhealthy, EtcdCluster/west-etcd NoBackup"},
	} {
		if got := strings.Join(test.got, ", "); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
	root := all[0].Components[1]
	if got := Expiry(root.Expires, time.Date(2026, 12, 30, 0, 0, 0, 0, time.UTC)); got != "2027-01-01 (2 days)" {
		t.Errorf("the certificates expire %s", got)
	}
	if b := all[0].Backups[0]; b.Schedule != "@daily (suspended)" || b.Last.UTC().Day() != 2 {
		t.Errorf("the last snapshot: %+v", b)
	}
	if n := len(Summarize("team", "absent", o)); n != 0 {
		t.Errorf("%d installations without a RootShard", n)
	}
}

// leaks are credentials in the cluster of TestAReportHasNoCredentials.
var leaks = map[string]string{
	"the value of a Secret": "value-of-the-secret", "a line of a Secret": "a-long-line-of-a-kubeconfig", "a private key": "MIIEowIBAAKCAQEA",
	"a token": "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.c2lnbmF0dXJl", "a password in a URL": "hunter22", "a client secret": "oidc-secret-text",
	"a bearer token": "opaque-token-0123", "an escaped key": "MIIEescaped", "a password in a flag": "flag-password-1",
}

func TestAReportHasNoCredentials(t *testing.T) {
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	kubeconfig := "clusters: []\ntoken: " + leaks["a line of a Secret"] + "\n"
	c, _, _ := clusterWith(t, fmt.Sprintf(`apiVersion: operator.kcp.io/v1alpha1
kind: RootShard
metadata:
  name: main
  annotations: {kubectl.kubernetes.io/last-applied-configuration: "%[3]s", note: "%[2]s"}
spec: {auth: {oidc: {clientSecret: %[3]s, clientID: kcp}}, extraArgs: ["--hook=https://me:%[4]s@example.com", "--password=%[5]s"]}
---
apiVersion: v1
kind: Secret
type: Opaque
metadata: {name: credentials}
data: {password: %[1]s, kubeconfig: %[2]s, enabled: %[6]s}
---
apiVersion: events.k8s.io/v1
kind: Event
metadata: {name: event}
reason: Failed
note: "dialing with Bearer %[7]s failed"
---
apiVersion: v1
kind: Pod
metadata: {name: main-kcp-0}
spec: {nodeName: one, containers: [{name: kcp, env: [{name: X, value: %[8]s}]}]}
status: {phase: Running, containerStatuses: [{name: kcp, restartCount: 1}]}`, encode(leaks["the value of a Secret"]), encode(kubeconfig),
		leaks["a client secret"], leaks["a password in a URL"], leaks["a password in a flag"], encode("true"), leaks["a bearer token"],
		leaks["the value of a Secret"]))
	c.Logs = func(_ context.Context, _, pod, container string, previous bool, limit int64) ([]byte, error) {
		if previous {
			return bytes.Repeat([]byte("x"), int(limit)+10), nil
		}
		return fmt.Appendf(nil, "started with true\n%s\n%s\ntoken %s\n-----BEGIN RSA PRIVATE KEY-----\n%s\n-----END RSA PRIVATE KEY-----\n"+
			`{"key":"-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----\n","after":"visible"}`+"\n", leaks["the value of a Secret"],
			"token: "+leaks["a line of a Secret"], leaks["a token"], leaks["a private key"], leaks["an escaped key"]), nil
	}
	found := reportOf(t, c)
	for name, content := range found {
		for what, text := range leaks {
			if strings.Contains(content, text) || strings.Contains(content, encode(text)) {
				t.Errorf("%s has %s:\n%s", name, what, content)
			}
		}
	}
	want := "cluster.yaml events.yaml logs/main-kcp-0/kcp.log logs/main-kcp-0/kcp.previous.log objects/rootshards/main.yaml " +
		"pods/main-kcp-0.yaml secrets.yaml status.yaml"
	if got := strings.Join(slices.Sorted(maps.Keys(found)), " "); got != want {
		t.Errorf("it has %s\n%s", got, found["errors.txt"])
	}
	if got := found["secrets.yaml"]; got != "- keys:\n  - enabled\n  - kubeconfig\n  - password\n  name: credentials\n  type: Opaque\n" {
		t.Errorf("Secrets:\n%s", got)
	}
	if n := len(found["logs/main-kcp-0/kcp.previous.log"]); n != 1000 {
		t.Errorf("the log before has %d bytes", n)
	}
	if log := found["logs/main-kcp-0/kcp.log"]; !strings.Contains(log, "started with true") || !strings.Contains(log, `"after":"visible"`) {
		t.Errorf("the log lacks what is no credential:\n%s", log)
	}
	if rs := found["objects/rootshards/main.yaml"]; !strings.Contains(rs, "clientID: kcp") {
		t.Errorf("the object lacks what is no credential:\n%s", rs)
	}
}

// reportOf returns the files of a report.
func reportOf(t *testing.T, c *Client) map[string]string {
	t.Helper()
	var archive bytes.Buffer
	r := Report{Client: c, Namespace: "team", LogBytes: 1000, Progress: func(string) {}, Now: time.Now()}
	n, err := r.Write(t.Context(), &archive)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	compressed, err := gzip.NewReader(&archive)
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(compressed); ; {
		header, err := files.Next()
		if err == io.EOF {
			break
		}
		content, readErr := io.ReadAll(files)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		found[strings.TrimPrefix(header.Name, "kcp-report-team/")] = string(content)
	}
	if n != len(found) {
		t.Errorf("%d files, want %d", len(found), n)
	}
	return found
}

// Without the values of Secrets, they could not be removed from logs.
func TestAReportRequiresPermissionToListSecrets(t *testing.T) {
	c, dynamic, _ := clusterWith(t, example)
	dynamic.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	r := Report{Client: c, Namespace: "team", LogBytes: 1000, Progress: func(string) {}}
	if _, err := r.Write(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "permission to list Secrets") {
		t.Errorf("got %v", err)
	}
}

func TestAClusterWithoutTheOperatorIsReportedOnce(t *testing.T) {
	c, dynamic, _ := clusterWith(t, example)
	dynamic.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(action.GetResource().GroupResource(), "")
	})
	_, err := c.Read(t.Context(), "team")
	if err == nil || strings.Count(err.Error(), "install the operator") != 1 {
		t.Errorf("got %v", err)
	}
}

func TestTheCheckSaysWhatIsMissing(t *testing.T) {
	const fast = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: fast, annotations: {" + defaultClass + ": \"true\"}}\n" +
		"allowVolumeExpansion: true"
	certManager := &metav1.APIResourceList{GroupVersion: "cert-manager.io/v1", APIResources: []metav1.APIResource{{Kind: "Certificate"}, {Kind: "Issuer"}}}
	old := &metav1.APIResourceList{GroupVersion: "operator.kcp.io/v1alpha1", APIResources: []metav1.APIResource{{Kind: "RootShard"}}}
	for _, c := range []struct {
		what    string
		storage string
		version string
		served  []*metav1.APIResourceList
		denied  string
		class   string
		want    map[string]string
	}{
		{"a cluster with everything", fast, "v1.31.0", []*metav1.APIResourceList{certManager}, "", "", nil},
		{"an old cluster", fast, "v1.30.9", []*metav1.APIResourceList{certManager}, "", "",
			map[string]string{"Kubernetes version": "Failed upgrade it to 1.31.0 or later"}},
		{"a build without a version", fast, "v0.0.0-master+$Format:%H$", []*metav1.APIResourceList{certManager}, "", "",
			map[string]string{"Kubernetes version": "Warning built without a version"}},
		{"without cert-manager", fast, "v1.35.1+k3s1", nil, "", "", map[string]string{"cert-manager": "Failed install cert-manager"}},
		{"with another operator", fast, "v1.35.1", []*metav1.APIResourceList{certManager, old}, "", "",
			map[string]string{"Definitions of the operator": "Failed without Shard, CacheServer"}},
		{"without permissions", fast, "v1.35.1", []*metav1.APIResourceList{certManager}, "clusterroles", "",
			map[string]string{"Permissions": "Failed create clusterroles.rbac.authorization.k8s.io: use the kubeconfig"}},
		{"another storage class", fast, "v1.35.1", []*metav1.APIResourceList{certManager}, "", "slow",
			map[string]string{"Storage class": `Failed there is no StorageClass "slow": choose another one. The cluster has: fast`}},
		{"no default class", strings.Replace(fast, `"true"`, `"false"`, 1), "v1.35.1", []*metav1.APIResourceList{certManager}, "", "",
			map[string]string{"Storage class": "Warning there is no default StorageClass"}},
		{"a class that does not grow", strings.Replace(fast, "allowVolumeExpansion: true", "", 1), "v1.35.1",
			[]*metav1.APIResourceList{certManager}, "", "", map[string]string{"Storage class": "Warning cannot grow later"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			client, dynamic, known := clusterWith(t, c.storage)
			known.FakedServerVersion.GitVersion, known.Resources = c.version, c.served
			dynamic.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
				review := action.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured).DeepCopy()
				resource, _, _ := unstructured.NestedString(review.Object, "spec", "resourceAttributes", "resource")
				return true, review, unstructured.SetNestedField(review.Object, resource != c.denied, "status", "allowed")
			})
			for _, r := range client.Check(t.Context(), Options{Namespace: "kcp-operator", StorageClass: c.class}) {
				want, bad := c.want[r.Check]
				status, message, _ := strings.Cut(want, " ")
				if !bad {
					status = "OK"
				}
				if string(r.Status) != status || !strings.Contains(r.Message, message) {
					t.Errorf("%s: %s %s, want %s %q", r.Check, r.Status, r.Message, status, message)
				}
			}
		})
	}
}
