package cmd

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kcplane/kcp/operator/internal/scheme"
)

// cluster is a cluster with a working operator.
type cluster struct {
	resources  []*metav1.APIResourceList
	deployment *appsv1.Deployment
	lease      *coordinationv1.Lease
	pods       []client.Object
}

func resources(version string, kinds ...string) *metav1.APIResourceList {
	list := &metav1.APIResourceList{GroupVersion: version}
	for _, kind := range kinds {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: strings.ToLower(kind) + "s", Kind: kind})
	}
	return list
}

func working(now time.Time) *cluster {
	name := metav1.ObjectMeta{Namespace: "operators", Name: "release", Generation: 2}
	return &cluster{
		resources: []*metav1.APIResourceList{
			resources("operator.kcp.io/v1alpha1", "RootShard", "Shard", "FrontProxy", "CacheServer", "VirtualWorkspace", "Kubeconfig", "EtcdCluster",
				"EtcdBackup", "EtcdBackupSchedule"),
			resources("cert-manager.io/v1", "Certificate", "Issuer", "ClusterIssuer"),
		},
		deployment: &appsv1.Deployment{
			ObjectMeta: name,
			Status:     appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1},
		},
		lease: &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "operators", Name: leaseName},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: new("release-0_1234"), LeaseDurationSeconds: new(int32(15)),
				RenewTime: new(metav1.NewMicroTime(now.Add(-3 * time.Second)))},
		},
	}
}

func TestCheckReportsWhatIsMissing(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		name   string
		change func(*cluster)
		want   string
	}{
		{"nothing", func(*cluster) {}, ""},
		{"a definition", func(c *cluster) {
			c.resources[0] = resources("operator.kcp.io/v1alpha1", "RootShard", "Shard", "FrontProxy", "CacheServer", "VirtualWorkspace", "EtcdCluster",
				"EtcdBackup", "EtcdBackupSchedule")
		},
			"the cluster has no Kubeconfig of operator.kcp.io/v1alpha1: install the definitions"},
		{"all definitions", func(c *cluster) { c.resources = c.resources[1:] },
			"the cluster has no CacheServer, EtcdBackup, EtcdBackupSchedule, EtcdCluster, FrontProxy, Kubeconfig, RootShard, Shard, VirtualWorkspace of"},
		{"cert-manager", func(c *cluster) { c.resources = c.resources[:1] }, "install cert-manager"},
		{"the operator", func(c *cluster) { c.deployment.Name = "another" }, "getting the Deployment of the operator"},
		{"a pod", func(c *cluster) { c.deployment.Status.AvailableReplicas = 0 }, "kubectl describe deployment --namespace operators release"},
		{"its image", func(c *cluster) {
			c.deployment.Status.AvailableReplicas = 0
			c.deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "operator"}}
			c.pods = []client.Object{&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "operators", Name: "release-0", Labels: map[string]string{"app": "operator"}},
				Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: `Back-off pulling image "localhost/nothing:v9"`}}}}},
			}}
		}, `pod release-0: ImagePullBackOff: Back-off pulling image "localhost/nothing:v9": correct image.repository`},
		{"the new pod", func(c *cluster) { c.deployment.Status.Replicas = 2 }, "1 are up to date"},
		{"a rollout that was not observed yet", func(c *cluster) { c.deployment.Generation = 3 }, "Deployment operators/release"},
		{"the lease", func(c *cluster) { c.lease.Name = "another" }, "no pod of the operator has become leader yet"},
		{"the holder of the lease", func(c *cluster) { c.lease.Spec.HolderIdentity = new("") }, "kubectl logs --namespace operators deployment/release"},
		{"a holder that lives", func(c *cluster) { c.lease.Spec.RenewTime = new(metav1.NewMicroTime(now.Add(-time.Minute))) }, "no pod of the operator holds the Lease"},
	} {
		t.Run(test.name, func(t *testing.T) {
			there := working(now)
			test.change(there)
			c := check{
				Reader:     fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(append(there.pods, there.deployment, there.lease)...).Build(),
				served:     &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: there.resources}},
				deployment: client.ObjectKey{Namespace: "operators", Name: "release"},
				leader:     true,
				now:        func() time.Time { return now },
			}
			ctx, cancel := context.WithCancel(t.Context())
			if test.want != "" {
				cancel() // one look tells
			}
			defer cancel()
			var out strings.Builder
			err := c.await(ctx, &out)
			if test.want == "" && (err != nil || !strings.HasSuffix(out.String(), "Pod release-0 works.\n")) {
				t.Errorf("%v\n%s", err, &out)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
