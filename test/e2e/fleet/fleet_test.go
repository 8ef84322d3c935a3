package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

// web is a stock Deployment, as users find it in documentation.
const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default, labels: {app: web}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: nginx, image: "nginx:1.27", ports: [{containerPort: 80}]}]
`

// TestFleet has one installation for all tests, because two API servers take a while to start.
func TestFleet(t *testing.T) {
	f := install(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"AnIdleAgentUsesLessThan60MiB", f.isSmall},
		{"TheChartIsValidAndItsPodsAreRestricted", f.validatesChart},
		{"OnlyUsersOfTheProviderWithThePermissionReadMetrics", f.servesMetrics},
		{"AStockDeploymentRunsOnSomeClusterAndItsStatusComesBack", f.runsStockDeployment},
		{"KubectlGetShowsTheColumnsOfBuiltInKinds", f.showsColumns},
		{"ARolloutIsRestartedAndDescribedWithItsConditions", f.restartsRollouts},
		{"StockManifestsOfSeveralKindsRunUnchanged", f.runsStockManifests},
		{"TheCorpusOfApplicationsExistsOnTheCluster", f.placesCorpus},
		{"CertManagerIssuesACertificateThatReachesTheCluster", f.runsCertManager},
		{"FluxDeploysAnApplicationThatRunsOnTheCluster", f.runsFlux},
		{"DecisionsWriteNothingToObjectsOfUsers", f.writesNothing},
		{"RolesOfUsersStayInTheWorkspace", f.keepsRoles},
		{"OnlyReferencedSecretsReachTheCluster", f.syncsReferencedSecrets},
		{"DeletedObjectsDisappearFromTheCluster", f.deletes},
		{"AnObjectThatTheAgentDidNotCreateIsNotTouched", f.respectsOthers},
		{"ANamespaceThatTheAgentDidNotCreateIsNotUsed", f.respectsNamespaces},
		{"TheAgentMayNotWriteOutsideOfItsNamespaces", f.limitsAgent},
		{"TheAgentReadsSecretsOnlyInNamespacesThatItCreated", f.limitsSecrets},
		{"AReplacedAgentIsRefusedAtOnce", f.replacesAgent},
		{"AClusterRunsOnlyResourcesThatItAccepts", f.comparesSchemas},
		{"ANamespaceRunsOnlyWhereItsRequestsFit", f.respectsRoom},
		{"AnAgentReachesOnlyItsOwnView", f.isolatesAgents},
		{"ABootstrapTokenOnlyRequestsACertificate", f.limitsBootstrap},
		{"SpreadDividesTheReplicasAndAddsUpTheStatus", f.spreads},
		{"ASelectorMovesAnApplicationAndTheFormerCopyStaysUntilTheNewOneIsReady", f.moves},
		{"DrainingAClusterMovesItsWorkload", f.drains},
		{"AnAgentThatRestartsWithAnEmptyCacheDeletesWhatIsGoneAndKeepsTheRest", f.restartsAgent},
		{"OfTwoAgentsWithOneIdentityOneWorks", f.runsOneOfTwoAgents},
		{"AControllerThatRestartsRemovesNothing", f.restartsController},
		{"ManyNamespacesMoveWithinTheLimitAndNothingIsWrittenToTheirObjects", f.movesMany},
		{"ALostClusterKeepsItsAssignmentsUnlessAPlacementToleratesItForALimitedTime", f.losesCluster},
	} {
		if !t.Run(test.name, test.run) && t.Context().Err() != nil {
			return
		}
	}
}

// copies returns the clusters on which a Deployment of a workspace exists, with its replicas.
func (f *fleet) copies(ctx context.Context, w *kcptest.Cluster, name string) (map[string]*appsv1.Deployment, error) {
	found := map[string]*appsv1.Deployment{}
	for _, c := range f.clusters {
		list, err := c.kube.AppsV1().Deployments(w.Name+"-default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if list.Items[i].Name == name {
				found[c.name] = &list.Items[i]
			}
		}
	}
	return found, nil
}

func names(found map[string]*appsv1.Deployment) string {
	var all []string
	for name := range found {
		all = append(all, name)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// waitForCopies waits until a Deployment exists exactly on some clusters.
func (f *fleet) waitForCopies(t *testing.T, w *kcptest.Cluster, name, want string) map[string]*appsv1.Deployment {
	t.Helper()
	var found map[string]*appsv1.Deployment
	kcptest.Eventually(t, fmt.Sprintf("%s runs on %q", name, want), func(ctx context.Context) (err error) {
		if found, err = f.copies(ctx, w, name); err == nil && names(found) != want {
			err = fmt.Errorf("it runs on %q; assignments: %s", names(found), f.describe(ctx, w))
		}
		return err
	})
	return found
}

// describe returns the assignments of a workspace.
func (f *fleet) describe(ctx context.Context, w *kcptest.Cluster) string {
	list, err := f.stored.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var all []string
	for i := range list.Items {
		if spec, _ := list.Items[i].Object["spec"].(map[string]any); spec["workspace"] == w.Name {
			all = append(all, fmt.Sprint(list.Items[i].GetGeneration(), spec, list.Items[i].Object["status"]))
		}
	}
	return strings.Join(all, "; ")
}

func on(region string) string { return "{clusterSelector: {matchLabels: {region: " + region + "}}}" }

func (f *fleet) runsStockDeployment(t *testing.T) {
	w := f.workspace(t, "{}")
	w.Apply(t, web)
	stored := w.Objects(t, deployments).Namespace("default")
	kcptest.WaitForStatus(t, stored, "web", "3", "availableReplicas")
	w.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=30s")
	found, err := f.copies(t.Context(), w, "web")
	if err != nil || len(found) != 1 {
		t.Fatalf("it runs on %q: %v", names(found), err)
	}
	u, err := stored.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(u.GetFinalizers()) > 0 || len(u.GetLabels()) != 1 || len(u.GetAnnotations()) != 2 {
		t.Errorf("the object of the user has marks: %v, %v, %v", u.GetFinalizers(), u.GetLabels(), u.GetAnnotations())
	}
	w.Kubectl(t, "scale", "deployment/web", "--replicas=5")
	kcptest.WaitForStatus(t, stored, "web", "5", "availableReplicas")
	w.Kubectl(t, "label", "deployment/web", "app-")
	kcptest.Eventually(t, "a removed label is removed on the cluster", func(ctx context.Context) error {
		found, err := f.copies(ctx, w, "web")
		for _, d := range found {
			if d.Labels["app"] != "" {
				return fmt.Errorf("labels are %v", d.Labels)
			}
		}
		return err
	})
}

func (f *fleet) writesNothing(t *testing.T) {
	w := f.workspace(t, on("east"))
	w.Apply(t, web)
	f.waitForCopies(t, w, "web", "east")
	stored := w.Objects(t, deployments).Namespace("default")
	kcptest.WaitForStatus(t, stored, "web", "3", "availableReplicas")
	before, err := stored.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.Kubectl(t, "patch", "placement", "all", "--type=merge", "-p", `{"spec":`+strings.NewReplacer("clusterSelector", `"clusterSelector"`,
		"matchLabels", `"matchLabels"`, "region", `"region"`, "east", `"west"`).Replace(on("east"))+`}`)
	f.waitForCopies(t, w, "web", "west")
	after, err := stored.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if before.GetResourceVersion() != after.GetResourceVersion() {
		t.Errorf("the move wrote to the Deployment:\n%v\n%v", before, after)
	}
}

func (f *fleet) deletes(t *testing.T) {
	w := f.workspace(t, on("east"))
	w.Apply(t, web+"---"+strings.ReplaceAll(web, "name: web,", "name: other,"))
	f.waitForCopies(t, w, "web", "east")
	f.waitForCopies(t, w, "other", "east")
	w.Kubectl(t, "delete", "deployment", "web", "-n", "default")
	f.waitForCopies(t, w, "web", "")
	f.waitForCopies(t, w, "other", "east")
	w.Kubectl(t, "delete", "placement", "all")
	f.waitForCopies(t, w, "other", "")
	kcptest.Eventually(t, "no assignment of the workspace is left", func(ctx context.Context) error {
		if left := f.describe(ctx, w); left != "" {
			return errors.New(left)
		}
		return nil
	})
}

func (f *fleet) spreads(t *testing.T) {
	w := f.workspace(t, "{strategy: Spread, spread: {weights: {west: 2}}}")
	w.Apply(t, web)
	stored := w.Objects(t, deployments).Namespace("default")
	found := f.waitForCopies(t, w, "web", "east,west")
	if east, west := *found["east"].Spec.Replicas, *found["west"].Spec.Replicas; east != 1 || west != 2 {
		t.Errorf("east has %d replicas, and west %d", east, west)
	}
	kcptest.WaitForStatus(t, stored, "web", "3", "availableReplicas")
	w.Kubectl(t, "scale", "deployment/web", "--replicas=9")
	kcptest.WaitForStatus(t, stored, "web", "9", "availableReplicas")
	kcptest.WaitForStatus(t, stored, "web", "2", "observedGeneration")
}

func (f *fleet) moves(t *testing.T) {
	w := f.workspace(t, on("east"))
	w.Apply(t, web)
	stored := w.Objects(t, deployments).Namespace("default")
	kcptest.WaitForStatus(t, stored, "web", "3", "availableReplicas")
	f.waitForCopies(t, w, "web", "east")
	west := f.clusters["west"].workers
	west.held.Store(true)
	defer west.held.Store(false)
	w.Apply(t, "apiVersion: fleet.kcp.io/v1alpha1\nkind: Placement\nmetadata: {name: all}\nspec: "+on("west"))
	f.waitForCopies(t, w, "web", "east,west")
	kcptest.Eventually(t, "the agent of west reports that it waits", func(ctx context.Context) error {
		if text := f.describe(ctx, w); !strings.Contains(text, "deployments web: ") {
			return errors.New(text)
		}
		return nil
	})
	found := f.waitForCopies(t, w, "web", "east,west")
	if found["east"].Status.AvailableReplicas != 3 {
		t.Errorf("the former copy has %d replicas", found["east"].Status.AvailableReplicas)
	}
	kcptest.WaitForStatus(t, stored, "web", "3", "availableReplicas")
	west.held.Store(false)
	f.waitForCopies(t, w, "web", "west")
	kcptest.WaitForStatus(t, stored, "web", "3", "availableReplicas")
}

func (f *fleet) drains(t *testing.T) {
	w := f.workspace(t, "{}")
	w.Apply(t, web)
	var from string
	kcptest.Eventually(t, "web runs on a cluster", func(ctx context.Context) error {
		found, err := f.copies(ctx, w, "web")
		if from = names(found); err == nil && len(found) != 1 {
			err = fmt.Errorf("it runs on %q", from)
		}
		return err
	})
	to := map[string]string{"east": "west", "west": "east"}[from]
	f.fleetctl(t).Run(t, "fleet", "drain", from)
	defer f.fleetctl(t).Run(t, "fleet", "uncordon", from)
	f.waitForCopies(t, w, "web", to)
}

func (f *fleet) restartsAgent(t *testing.T) {
	w := f.workspace(t, on("east"))
	w.Apply(t, web+"---"+strings.ReplaceAll(web, "name: web,", "name: other,"))
	f.waitForCopies(t, w, "web", "east")
	other := f.waitForCopies(t, w, "other", "east")["east"].UID
	east := f.clusters["east"]
	if err := east.agent.Stop(); err != nil {
		t.Fatal(err)
	}
	w.Kubectl(t, "delete", "deployment", "web", "-n", "default")
	east.agent = f.begin("east-agent-restarted", east.agentArgs...)
	f.waitForCopies(t, w, "web", "")
	if now := f.waitForCopies(t, w, "other", "east")["east"].UID; now != other {
		t.Error("the Deployment that remains was created again")
	}
}

// holder returns the process that holds the Lease of a cluster.
func (f *fleet) holder(t *testing.T, cluster string) string {
	t.Helper()
	lease, err := f.provider.Kube(t, kcptest.Masters).CoordinationV1().Leases("kcp-fleet").Get(t.Context(), cluster, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		t.Fatalf("the Lease of %s has no holder: %v", cluster, err)
	}
	return *lease.Spec.HolderIdentity
}

func (f *fleet) runsOneOfTwoAgents(t *testing.T) {
	w := f.workspace(t, on("west"))
	w.Apply(t, web)
	uid := f.waitForCopies(t, w, "web", "west")["west"].UID
	west, first := f.clusters["west"], f.holder(t, "west")
	second := f.begin("west-agent-second", west.agentArgs...)
	stored := w.Objects(t, deployments).Namespace("default")
	w.Kubectl(t, "scale", "deployment/web", "--replicas=4")
	kcptest.WaitForStatus(t, stored, "web", "4", "availableReplicas")
	if now := f.holder(t, "west"); now != first {
		t.Errorf("the second agent works as %s beside the first, %s", now, first)
	}
	if err := west.agent.Stop(); err != nil {
		t.Fatal(err)
	}
	west.agent = second
	w.Kubectl(t, "scale", "deployment/web", "--replicas=5")
	kcptest.WaitForStatus(t, stored, "web", "5", "availableReplicas")
	if now := f.holder(t, "west"); now == first {
		t.Errorf("the agent that has stopped still holds the Lease: %s", now)
	}
	if now := f.waitForCopies(t, w, "web", "west")["west"].UID; now != uid {
		t.Error("the Deployment was created again")
	}
}

func (f *fleet) restartsController(t *testing.T) {
	w := f.workspace(t, on("east"))
	w.Apply(t, web)
	uid := f.waitForCopies(t, w, "web", "east")["east"].UID
	f.controller.Kill()
	f.controller = f.begin("controller-restarted", f.controllerArgs...)
	w.Kubectl(t, "scale", "deployment/web", "--replicas=4")
	kcptest.WaitForStatus(t, w.Objects(t, deployments).Namespace("default"), "web", "4", "availableReplicas")
	if now := f.waitForCopies(t, w, "web", "east")["east"].UID; now != uid {
		t.Error("the Deployment was created again")
	}
}

func (f *fleet) losesCluster(t *testing.T) {
	stays := f.workspace(t, "{}")
	stays.Apply(t, web)
	kcptest.WaitForStatus(t, stays.Objects(t, deployments).Namespace("default"), "web", "3", "availableReplicas")
	found, err := f.copies(t.Context(), stays, "web")
	if err != nil {
		t.Fatal(err)
	}
	lost := names(found)
	leaves := f.workspace(t, strings.TrimSuffix(on(lost), "}")+
		", tolerations: [{key: fleet.kcp.io/not-ready, effect: NoExecute, tolerationSeconds: 1}]}")
	leaves.Apply(t, web)
	f.waitForCopies(t, leaves, "web", lost)
	leaves.Kubectl(t, "patch", "placement", "all", "--type=merge", "-p", `{"spec":{"clusterSelector":null}}`) // it stays where it fits
	f.clusters[lost].agent.Kill()
	kcptest.WaitForCondition(t, f.provider.Objects(t, clusters), lost, "Ready", "False", "AgentLost")
	f.waitForCopies(t, leaves, "web", "east,west")
	kcptest.WaitForStatus(t, leaves.Objects(t, deployments).Namespace("default"), "web", "3", "availableReplicas")
	if found, err = f.copies(t.Context(), stays, "web"); err != nil || names(found) != lost {
		t.Errorf("without a toleration, it runs on %q: %v", names(found), err)
	}
}
