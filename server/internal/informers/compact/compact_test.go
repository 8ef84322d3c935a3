package compact

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/randfill"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
)

func logicalCluster(n int) *corev1alpha1.LogicalCluster {
	uid := types.UID(fmt.Sprintf("13569ebc-0c6a-4fa2-bd32-%012x", n))
	return &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{
			Name: "cluster", UID: uid, ResourceVersion: fmt.Sprint(1000 + n), Generation: 1, CreationTimestamp: metav1.Unix(1_800_000_000, 0),
			Labels:      map[string]string{"tenancy.kcp.io/phase": "Ready"},
			Annotations: map[string]string{"kcp.io/cluster": fmt.Sprintf("cluster%09d", n), "kcp.io/path": fmt.Sprintf("root:team-%d", n), "internal.tenancy.kcp.io/type": "root:organization"},
			Finalizers:  []string{"core.kcp.io/logicalcluster-deletion"},
		},
		Spec: corev1alpha1.LogicalClusterSpec{
			Owner:     &corev1alpha1.LogicalClusterOwner{APIVersion: "tenancy.kcp.io/v1alpha1", Resource: "workspaces", Name: fmt.Sprintf("team-%d", n), Cluster: "root", UID: uid},
			CreatedBy: &corev1alpha1.UserInfo{Username: "kcp-admin", Groups: []string{"system:kcp:admin", "system:authenticated"}},
		},
		Status: corev1alpha1.LogicalClusterStatus{URL: fmt.Sprintf("https://localhost:6443/clusters/cluster%09d", n), Phase: corev1alpha1.LogicalClusterPhaseReady},
	}
}

func TestUnpackedObjectsEqualThePackedOnes(t *testing.T) {
	fill := randfill.NewWithSeed(rand.Int64()).NilChance(0.3).NumElements(0, 3).Funcs(
		func(s *string, c randfill.Continue) {
			*s = []string{
				"", "0", "007", "18446744073709551615", "99999999999999999999", "-1", "cluster", "core.kcp.io/shard", strings.Repeat("x", 1000),
				"13569ebc-0c6a-4fa2-bd32-4b48223cb5ec", "13569EBC-0C6A-4FA2-BD32-4B48223CB5EC", "a\x00b",
				"https://host:6443/clusters/root:team", "/clusters/", "https://host:6443/clusters/https://host:6443/clusters/a-long-name",
				"a-long-name", "another-long-name", c.String(20),
			}[c.Intn(18)]
		},
		func(t *metav1.Time, c randfill.Continue) {
			if c.Intn(3) > 0 {
				*t = metav1.Unix(c.Int63n(1<<40)-1<<39, 0)
			}
		},
		func(*[]metav1.ManagedFieldsEntry, randfill.Continue) {},
	)
	workspaces, err := New(&tenancyv1alpha1.Workspace{})
	if err != nil {
		t.Fatal(err)
	}
	clusters, err := New(&corev1alpha1.LogicalCluster{})
	if err != nil {
		t.Fatal(err)
	}
	type packed struct {
		codec     *Codec
		want      any
		key, data string
	}
	var all []packed
	for n := range 3000 {
		ws, lc := &tenancyv1alpha1.Workspace{}, &corev1alpha1.LogicalCluster{}
		fill.Fill(ws)
		fill.Fill(lc)
		key := []string{fmt.Sprint(n), "a-long-name|another-long-name", "cluster|", "|cluster/007", "https://host:6443/clusters/root:team", strings.Repeat("a-long-name|", 20)}[n%6]
		all = append(all, packed{workspaces, ws, key, workspaces.Pack(key, ws)}, packed{clusters, lc, key, clusters.Pack(key, lc)})
	}
	for _, p := range all { // once more words are known than there were then
		if got := p.codec.Unpack(p.key, p.data); !reflect.DeepEqual(got, p.want) {
			t.Fatalf("got %#v\nwant %#v", got, p.want)
		}
	}
}

func TestSimilarObjectsTakeFewBytes(t *testing.T) {
	for range 300 { // what shares a place with what is another with each seed
		codec, err := New(&corev1alpha1.LogicalCluster{})
		if err != nil {
			t.Fatal(err)
		}
		var packed string
		for n := range 100 {
			packed = codec.Pack(fmt.Sprint(n), logicalCluster(n))
		}
		if len(packed) > 120 {
			t.Fatalf("a logical cluster takes %d bytes", len(packed))
		}
	}
}

func TestAStringThatAnObjectHasTwiceIsPackedOnce(t *testing.T) {
	codec, err := New(&corev1alpha1.LogicalCluster{})
	if err != nil {
		t.Fatal(err)
	}
	lc := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-name-of-one-object"}}
	once := len(codec.Pack("a", lc))
	lc.Spec.CreatedBy = &corev1alpha1.UserInfo{Username: lc.GenerateName}
	if twice := codec.Pack("a", lc); len(twice) > once+8 || !reflect.DeepEqual(codec.Unpack("a", twice), lc) {
		t.Errorf("%d bytes, %d with the string twice", once, len(twice))
	}
}

func TestPartsOfTheKeyAreNotPackedAgain(t *testing.T) {
	codec, err := New(&corev1alpha1.LogicalCluster{})
	if err != nil {
		t.Fatal(err)
	}
	lc := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "a-name", Namespace: "a-namespace", GenerateName: "a-cluster"}}
	const key = "a-cluster|a-namespace/a-name"
	packed := codec.Pack(key, lc)
	if len(packed) > 8 || !reflect.DeepEqual(codec.Unpack(key, packed), lc) {
		t.Errorf("%q has what the key has", packed)
	}
}

func TestURLsOfLogicalClustersShareWhatTheyBeginWith(t *testing.T) {
	codec, err := New(&corev1alpha1.LogicalCluster{})
	if err != nil {
		t.Fatal(err)
	}
	pack := func(n int, url string) int {
		lc := &corev1alpha1.LogicalCluster{Status: corev1alpha1.LogicalClusterStatus{URL: url}}
		packed := codec.Pack(fmt.Sprint(n), lc)
		if !reflect.DeepEqual(codec.Unpack(fmt.Sprint(n), packed), lc) {
			t.Errorf("%s is packed as %q", url, packed)
		}
		return len(packed)
	}
	first, last := pack(0, "https://a-long-host.example.com:6443/clusters/a0"), 0
	for n := range 100 { // a sighting is remembered at random
		last = pack(n, fmt.Sprintf("https://a-long-host.example.com:6443/clusters/a%d", n))
	}
	if last > first-40 {
		t.Errorf("%d bytes, %d later", first, last)
	}
}

func TestStringsOfOneObjectAreNotRemembered(t *testing.T) {
	codec, err := New(&corev1alpha1.LogicalCluster{})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		codec.Pack("one", logicalCluster(1))
	}
	if n := len(*codec.words.numbered.Load()); n != 0 {
		t.Errorf("%d words come from one object", n)
	}
	for n := range 3 * maxWords {
		for _, object := range []string{"a", "b"} {
			codec.Pack(object, &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("name-", n)}})
		}
	}
	if n := len(*codec.words.numbered.Load()); n != maxWords {
		t.Errorf("%d words are kept, want %d at the most", n, maxWords)
	}
}

func TestTypesThatCannotBePackedAreRefused(t *testing.T) {
	if _, err := New(&corev1.Pod{}); err == nil || !strings.Contains(err.Error(), "Pod") {
		t.Errorf("got error %v", err)
	}
}

func TestUnpackDuringPack(t *testing.T) {
	codec, err := New(&corev1alpha1.LogicalCluster{})
	if err != nil {
		t.Fatal(err)
	}
	packed := make(chan string)
	go func() {
		defer close(packed)
		for n := range 2000 {
			packed <- codec.Pack(fmt.Sprint(n), logicalCluster(n))
		}
	}()
	n := 0
	for p := range packed {
		if got := codec.Unpack(fmt.Sprint(n), p); !reflect.DeepEqual(got, logicalCluster(n)) {
			t.Fatalf("got %v", got)
		}
		n++
	}
}

func BenchmarkUnpack(b *testing.B) {
	codec, err := New(&corev1alpha1.LogicalCluster{})
	if err != nil {
		b.Fatal(err)
	}
	packed := codec.Pack("1", logicalCluster(1))
	b.ReportAllocs()
	for b.Loop() {
		runtime.KeepAlive(codec.Unpack("1", packed))
	}
}

func BenchmarkPack(b *testing.B) {
	codec, err := New(&corev1alpha1.LogicalCluster{})
	if err != nil {
		b.Fatal(err)
	}
	lc := logicalCluster(1)
	b.ReportAllocs()
	for b.Loop() {
		runtime.KeepAlive(codec.Pack("1", lc))
	}
}

func TestAKnownStringTakesItsNumberOnly(t *testing.T) {
	long := strings.Repeat("certificate", 200)
	codec, err := New(&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	configMap := &corev1.ConfigMap{Data: map[string]string{"ca.crt": long}}
	unknown := codec.Pack("a", configMap)
	codec.Know(long)
	codec.Know(long)
	known := codec.Pack("a", configMap)
	if len(unknown) < len(long) || len(known) > 20 {
		t.Errorf("got %d bytes before, %d after", len(unknown), len(known))
	}
	for _, packed := range []string{unknown, known} {
		if diff := cmp.Diff(configMap, codec.Unpack("a", packed)); diff != "" {
			t.Error(diff)
		}
	}
}
