package fleet

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// shop has an object of each kind whose columns users read most.
const shop = web + `
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {type: ClusterIP, selector: {app: web}, ports: [{port: 80, protocol: TCP}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: default}
spec:
  ingressClassName: nginx
  rules: [{host: shop.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: default}
spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: import, namespace: default}
spec:
  completions: 2
  template: {spec: {restartPolicy: Never, containers: [{name: import, image: "shop:1"}]}}
`

// showsColumns checks that kubectl get shows what users expect of built-in kinds.
func (f *fleet) showsColumns(t *testing.T) {
	w := f.workspace(t, on("east"))
	w.Apply(t, shop)
	kcptest.WaitForStatus(t, w.Objects(t, deployments).Namespace("default"), "web", "3", "availableReplicas")
	claims := corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	kcptest.WaitForStatus(t, w.Objects(t, claims).Namespace("default"), "data", "Pending", "phase")
	for resource, want := range map[string][]string{
		"deployments":            {"NAME READY DESIRED UP-TO-DATE AVAILABLE AGE", "web 3 3 3 3 "},
		"services":               {"NAME TYPE CLUSTER-IP EXTERNAL-IP PORT PROTOCOL AGE", "web ClusterIP 80 TCP "},
		"ingresses":              {"NAME CLASS HOST ADDRESS AGE", "web nginx shop.example.com "},
		"persistentvolumeclaims": {"NAME STATUS VOLUME CAPACITY ACCESS MODES STORAGECLASS AGE", `data Pending ["ReadWriteOnce"] fast `},
		"jobs":                   {"NAME COMPLETE COMPLETIONS SUCCEEDED ACTIVE FAILED AGE", "import 2 "},
	} {
		lines := strings.Split(w.Kubectl(t, "get", resource, "--namespace=default"), "\n")
		for i, prefix := range want {
			if line := strings.Join(strings.Fields(lines[i]), " "); !strings.HasPrefix(line, prefix) {
				t.Errorf("%s: line %d is %q, want %q", resource, i, line, prefix)
			}
		}
	}
	if out := w.Kubectl(t, "get", "deployments", "--namespace=default", "--output=wide"); !strings.Contains(out, "nginx:1.27") {
		t.Errorf("with -o wide: %s", out)
	}
}

// restartsRollouts checks what users do instead of deleting pods.
func (f *fleet) restartsRollouts(t *testing.T) {
	w := f.workspace(t, on("east"))
	w.Apply(t, web)
	stored := w.Objects(t, deployments).Namespace("default")
	kcptest.WaitForStatus(t, stored, "web", "3", "availableReplicas")
	const restarted = "kubectl.kubernetes.io/restartedAt"
	w.Kubectl(t, "rollout", "restart", "deployment/web", "--namespace=default")
	kcptest.Eventually(t, "the pods on the cluster are replaced", func(ctx context.Context) error {
		found, err := f.copies(ctx, w, "web")
		if err == nil && (found["east"] == nil || found["east"].Spec.Template.Annotations[restarted] == "") {
			err = fmt.Errorf("the Deployment on the cluster is %v", found["east"])
		}
		return err
	})
	w.Kubectl(t, "rollout", "status", "deployment/web", "--namespace=default", "--timeout=60s")
	described := w.Kubectl(t, "describe", "deployment", "web", "--namespace=default")
	for _, part := range []string{"3 available", "MinimumReplicasAvailable"} {
		if !strings.Contains(described, part) {
			t.Errorf("kubectl describe does not show %q:\n%s", part, described)
		}
	}
}
