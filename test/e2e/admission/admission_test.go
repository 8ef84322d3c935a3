package admission

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// webhook is a server that answers AdmissionReviews and records them.
type webhook struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*admissionv1.AdmissionRequest
}

func newWebhook(t *testing.T, answer func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) *webhook {
	w := &webhook{}
	w.Server = httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(in.Body).Decode(review); err != nil || review.Request == nil {
			http.Error(out, "no review", http.StatusBadRequest)
			return
		}
		w.mu.Lock()
		w.seen = append(w.seen, review.Request)
		w.mu.Unlock()
		response := answer(review.Request)
		response.UID = review.Request.UID
		_ = json.NewEncoder(out).Encode(&admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: response})
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *webhook) requests() []*admissionv1.AdmissionRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

func (w *webhook) client() admissionregistrationv1.WebhookClientConfig {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw})
	return admissionregistrationv1.WebhookClientConfig{URL: &w.URL, CABundle: ca}
}

// creations returns a rule for the creation of ConfigMaps, for the webhooks of these tests.
func creations() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

var (
	none        = admissionregistrationv1.SideEffectClassNone
	failClosed  = admissionregistrationv1.Fail
	jsonPatched = admissionv1.PatchTypeJSONPatch
)

func TestValidatingWebhookAppliesOnlyInItsCluster(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours, theirs := server.Cluster(t), server.Cluster(t)
	hook := newWebhook(t, func(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: !strings.HasPrefix(request.Name, "bad"), Result: &metav1.Status{Message: "names must be good"}}
	})
	_, err := ours.Kube(t, kcptest.Masters).AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx,
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "names"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "names.example.com", ClientConfig: hook.client(), Rules: creations(), SideEffects: &none, FailurePolicy: &failClosed,
				AdmissionReviewVersions: []string{"v1"},
			}},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the webhook refuses", func(ctx context.Context) error {
		_, err := ours.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Create(ctx, configMap("bad-"+kcptest.Suffix()), metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "names must be good") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	if _, err := theirs.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Create(ctx, configMap("bad"), metav1.CreateOptions{}); err != nil {
		t.Errorf("the webhook of another cluster refused: %v", err)
	}
	if _, err := ours.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Create(ctx, configMap("good"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	for _, request := range hook.requests() {
		object := &corev1.ConfigMap{}
		if err := json.Unmarshal(request.Object.Raw, object); err != nil {
			t.Fatal(err)
		}
		if in := object.Annotations["kcp.io/cluster"]; in != ours.Name {
			t.Errorf("the webhook got a review of %s with the cluster annotation %q", object.Name, in)
		}
	}
}

func TestMutatingWebhookAppliesOnlyInItsCluster(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours, theirs := server.Cluster(t), server.Cluster(t)
	hook := newWebhook(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: true, PatchType: &jsonPatched, Patch: []byte(`[{"op":"add","path":"/data","value":{"touched":"yes"}}]`)}
	})
	_, err := ours.Kube(t, kcptest.Masters).AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx,
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "touch"},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name: "touch.example.com", ClientConfig: hook.client(), Rules: creations(), SideEffects: &none, FailurePolicy: &failClosed,
				AdmissionReviewVersions: []string{"v1"},
			}},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the webhook changes objects", func(ctx context.Context) error {
		made, err := ours.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Create(ctx, configMap("x-"+kcptest.Suffix()), metav1.CreateOptions{})
		if err == nil && made.Data["touched"] != "yes" {
			return fmt.Errorf("got data %v", made.Data)
		}
		return err
	})
	made, err := theirs.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Create(ctx, configMap("x"), metav1.CreateOptions{})
	if err != nil || made.Data["touched"] != "" {
		t.Errorf("the webhook of another cluster changed the object: %v, %v", made, err)
	}
}

func TestValidatingPolicyAppliesOnlyInItsCluster(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours, theirs := server.Cluster(t), server.Cluster(t)
	ours.Apply(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: small}
spec:
  failurePolicy: Fail
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]
  validations:
  - expression: "!has(object.stringData) && (!has(object.data) || object.data.size() <= int(params.data.limit))"
    messageExpression: "'no more than ' + params.data.limit + ' keys'"
---
apiVersion: v1
kind: ConfigMap
metadata: {name: limits, namespace: default}
data: {limit: "1"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: small}
spec:
  policyName: small
  validationActions: [Deny]
  paramRef: {name: limits, namespace: default, parameterNotFoundAction: Deny}
`)
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"a": nil, "b": nil}}
	}
	kcptest.Eventually(t, "the policy refuses", func(ctx context.Context) error {
		_, err := ours.Kube(t, kcptest.Masters).CoreV1().Secrets("default").Create(ctx, secret("large-"+kcptest.Suffix()), metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "no more than 1 keys") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	if _, err := theirs.Kube(t, kcptest.Masters).CoreV1().Secrets("default").Create(ctx, secret("large"), metav1.CreateOptions{}); err != nil {
		t.Errorf("the policy of another cluster refused: %v", err)
	}
}

func TestMutatingPolicyAppliesOnlyInItsCluster(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours, theirs := server.Cluster(t), server.Cluster(t)
	ours.Apply(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: label}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"touched": "yes"}}}'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: label}
spec: {policyName: label}
`)
	kcptest.Eventually(t, "the policy changes objects", func(ctx context.Context) error {
		made, err := ours.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Create(ctx, configMap("x-"+kcptest.Suffix()), metav1.CreateOptions{})
		if err == nil && made.Labels["touched"] != "yes" {
			return fmt.Errorf("got labels %v", made.Labels)
		}
		return err
	})
	made, err := theirs.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Create(ctx, configMap("x"), metav1.CreateOptions{})
	if err != nil || made.Labels["touched"] != "" {
		t.Errorf("the policy of another cluster changed the object: %v, %v", made, err)
	}
}

func TestMutatingPolicyMergesCustomResourcesBySchema(t *testing.T) {
	t.Parallel()
	c := server.Cluster(t)
	c.Apply(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gateways.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: gateways, singular: gateway, kind: Gateway, listKind: GatewayList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              ports:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties:
                    name: {type: string}
                    port: {type: integer}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: health}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [example.org], apiVersions: [v1], operations: [CREATE], resources: [gateways]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{spec: Object.spec{ports: [Object.spec.ports{name: "health", port: 8080}]}}'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: health}
spec: {policyName: health}
`)
	c.WaitForDefinition(t, "gateways.example.org")
	resource := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "gateways"}
	kcptest.Eventually(t, "a port is added to the existing ports", func(ctx context.Context) error {
		made, err := c.Dynamic(t, kcptest.Masters).Resource(resource).Namespace("default").Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.org/v1", "kind": "Gateway", "metadata": map[string]any{"generateName": "gateway-"},
			"spec": map[string]any{"ports": []any{map[string]any{"name": "web", "port": int64(80)}}},
		}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		ports, _, err := unstructured.NestedSlice(made.Object, "spec", "ports")
		if len(ports) != 2 {
			return fmt.Errorf("got ports %v", ports)
		}
		return err
	})
}

func TestQuotaCountsOnlyItsCluster(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours, theirs := server.Cluster(t), server.Cluster(t)
	for _, c := range []*kcptest.Cluster{ours, theirs} {
		c.Kubectl(t, "create", "namespace", "small")
	}
	theirs.Kubectl(t, "create", "secret", "generic", "theirs", "--namespace=small")
	ours.Kubectl(t, "create", "quota", "few", "--namespace=small", "--hard=secrets=1")
	client := ours.Kube(t, kcptest.Masters).CoreV1()
	kcptest.Eventually(t, "the quota applies", func(ctx context.Context) error {
		quota, err := client.ResourceQuotas("small").Get(ctx, "few", metav1.GetOptions{})
		if err == nil && len(quota.Status.Hard) == 0 {
			return fmt.Errorf("its status is empty")
		}
		return err
	})
	ours.Kubectl(t, "create", "secret", "generic", "first", "--namespace=small")
	_, err := client.Secrets("small").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "second"}}, metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	if err != nil && !strings.Contains(err.Error(), "exceeded quota: few") {
		t.Errorf("the error does not name the quota: %v", err)
	}
	theirs.Kubectl(t, "create", "secret", "generic", "another", "--namespace=small")
	ours.Kubectl(t, "delete", "secret", "first", "--namespace=small")
	kcptest.Eventually(t, "deleted objects are no longer counted", func(ctx context.Context) error {
		_, err := client.Secrets("small").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "second"}}, metav1.CreateOptions{})
		return err
	})
}

func TestApprovingCertificateSigningRequestRequiresPermission(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	cluster.Grant(t, kcptest.Alice, "cluster-admin")
	cluster.Grant(t, kcptest.Bob, "view")
	cluster.Apply(t, signingRequest)
	cluster.Kubectl(t, "create", "clusterrole", "approver", "--verb=get,list,update,patch", "--resource=certificatesigningrequests,certificatesigningrequests/approval")
	cluster.Kubectl(t, "create", "clusterrolebinding", "bob-approver", "--clusterrole=approver", "--user=bob")
	kcptest.Eventually(t, "the approval without permission for the signer is refused", func(context.Context) error {
		refusal := cluster.Command(t, "kubectl", kcptest.Bob).Fail(t, "certificate", "approve", "robot")
		if !strings.Contains(refusal, "not permitted to approve requests with signerName") {
			return fmt.Errorf("got %s", refusal)
		}
		return nil
	})
	cluster.Command(t, "kubectl", kcptest.Alice).Run(t, "certificate", "approve", "robot")
}

// signingRequest returns a request for a client certificate.
const signingRequest = `
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: robot}
spec:
  signerName: example.com/signer
  usages: [client auth]
  request: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIS01ISUNBUUF3RURFT01Bd0dBMVVFQXd3RmNtOWliM1F3V1RBVEJnY3Foa2pPUFFJQkJnZ3Foa2pPUFFNQgpCd05DQUFTK09XWnpuUkVKRTYyR25ZbmtXNmtKQUI3VkJJSHZTRzI1WVEzaUd3ckpPdk9EV2VvNStEYWJNb1NpClR5dHg2N1o2VjRqMEV4TEgyWDhTYlJCQTFvbkJvQUF3Q2dZSUtvWkl6ajBFQXdJRFNBQXdSUUlnVVBDbmFXV3UKM3k3M3U1RkZvQUp5RjZIcFlVS0NGcE51Q1VadExtWXFHV0VDSVFDaEtEZ21BZm1zSzRMOUFWYkU1bUhsQ0YvcwpybkFFSzhwekEvSUdzdXJHaHc9PQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K
`
