package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// objects are created immediately one after the other. The last one is refused with this text, or accepted if refused is empty.
type manifests struct {
	objects []string
	refused string
}

// times is how often each sequence is repeated, because informers lag by about a millisecond.
const times = 20

func TestAdmissionSeesAcknowledgedWrites(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]manifests{
		"a type that another one extends": {objects: []string{`
apiVersion: tenancy.kcp.io/v1alpha1
kind: WorkspaceType
metadata: {name: base-N}
spec: {}`, `
apiVersion: tenancy.kcp.io/v1alpha1
kind: WorkspaceType
metadata: {name: more-N}
spec: {extend: {with: [{name: base-N}]}}`, `
apiVersion: tenancy.kcp.io/v1alpha1
kind: WorkspaceType
metadata: {name: most-N}
spec: {extend: {with: [{name: more-N, path: CLUSTER}]}}`}},
		"the type of a workspace": {objects: []string{`
apiVersion: tenancy.kcp.io/v1alpha1
kind: WorkspaceType
metadata: {name: own-N}
spec: {}`, `
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: ws-N}
spec: {type: {name: own-N}}`}},
		"the schema of a conversion": {objects: []string{`
apiVersion: apis.kcp.io/v1alpha1
kind: APIResourceSchema
metadata: {name: vN.widgets.example.io}
spec:
  group: example.io
  scope: Cluster
  conversion: {strategy: None}
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - {name: v1, served: true, storage: true, schema: {type: object}}
  - {name: v2, served: true, storage: false, schema: {type: object}}`, `
apiVersion: apis.kcp.io/v1alpha1
kind: APIConversion
metadata: {name: vN.widgets.example.io}
spec:
  conversions:
  - {from: v1, to: v2, rules: []}
  - {from: v2, to: v1, rules: []}`}},
		"a resource that is already published": {refused: "already", objects: []string{`
apiVersion: cache.kcp.io/v1alpha1
kind: ClusterCachedResource
metadata: {name: one-N}
spec: {group: example.io, version: v1, resource: thingsN}`, `
apiVersion: cache.kcp.io/v1alpha1
kind: ClusterCachedResource
metadata: {name: two-N}
spec: {group: example.io, version: v1, resource: thingsN}`}},
		"a policy for namespaces with a label": {refused: "never", objects: []string{`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: never-N}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {closed: "N"}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
  validations: [{expression: "false", message: never}]`, `
apiVersion: v1
kind: Namespace
metadata: {name: closed-N, labels: {closed: "N"}}`, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: never-N}
spec: {policyName: never-N, validationActions: [Deny]}`, `
apiVersion: v1
kind: ConfigMap
metadata: {name: one, namespace: closed-N}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := server.Cluster(t)
			for n := range times {
				for i, manifest := range test.objects {
					replaced := strings.NewReplacer("CLUSTER", cluster.Name, "-N", fmt.Sprintf("-%d", n), "vN", fmt.Sprintf("v%d", n), "thingsN", fmt.Sprintf("things%d", n),
						`"N"`, fmt.Sprintf(`"%d"`, n)).Replace(manifest)
					err := write(kcptest.Context(t), t, cluster, replaced)
					switch last := i == len(test.objects)-1; {
					case last && test.refused != "":
						if err == nil || !strings.Contains(err.Error(), test.refused) {
							t.Errorf("%d: got error %v, want it to contain %q", n, err, test.refused)
						}
					case err != nil:
						t.Errorf("%d: %v", n, err)
					}
				}
			}
		})
	}
}

// write creates an object as system:masters.
func write(ctx context.Context, t *testing.T, cluster *kcptest.Cluster, manifest string) error {
	obj := kcptest.Parse(t, manifest)
	gvk := obj.GroupVersionKind()
	plural := strings.ToLower(gvk.Kind) + "s"
	if strings.HasSuffix(gvk.Kind, "Policy") {
		plural = strings.TrimSuffix(plural, "ys") + "ies"
	}
	client := cluster.Objects(t, schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: plural})
	var err error
	if obj.GetNamespace() == "" {
		_, err = client.Create(ctx, obj, metav1.CreateOptions{})
	} else {
		_, err = client.Namespace(obj.GetNamespace()).Create(ctx, obj, metav1.CreateOptions{})
	}
	return err
}
