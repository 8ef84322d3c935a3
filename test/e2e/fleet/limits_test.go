package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// corpus are manifests of the kinds that ordinary applications have.
const corpus = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: default}
data: {color: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: password, namespace: default}
stringData: {password: hunter2}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 80}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: default}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: default}
spec:
  rules:
  - host: web.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: migrate, namespace: default}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: migrate, image: busybox, env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: password, key: password}}}]}
`

func (f *fleet) runsStockManifests(t *testing.T) {
	w := f.workspace(t, on("west"))
	w.Apply(t, web+"---"+corpus)
	kube, namespace := f.clusters["west"].kube, w.Name+"-default"
	kcptest.Eventually(t, "all objects exist on the cluster", func(ctx context.Context) error {
		for _, get := range []func() error{
			func() error {
				_, err := kube.AppsV1().Deployments(namespace).Get(ctx, "web", metav1.GetOptions{})
				return err
			},
			func() error {
				_, err := kube.CoreV1().ConfigMaps(namespace).Get(ctx, "settings", metav1.GetOptions{})
				return err
			},
			func() error {
				_, err := kube.CoreV1().Secrets(namespace).Get(ctx, "password", metav1.GetOptions{})
				return err
			},
			func() error {
				_, err := kube.CoreV1().Services(namespace).Get(ctx, "web", metav1.GetOptions{})
				return err
			},
			func() error {
				_, err := kube.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, "data", metav1.GetOptions{})
				return err
			},
			func() error {
				_, err := kube.NetworkingV1().Ingresses(namespace).Get(ctx, "web", metav1.GetOptions{})
				return err
			},
			func() error {
				_, err := kube.BatchV1().Jobs(namespace).Get(ctx, "migrate", metav1.GetOptions{})
				return err
			},
		} {
			if err := get(); err != nil {
				return err
			}
		}
		return nil
	})
	live, err := kube.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	if err != nil || live.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
		t.Errorf("labels of the namespace are %v: %v", live.Labels, err)
	}
	if _, err := kube.CoreV1().ResourceQuotas(namespace).Get(t.Context(), "kcp-fleet", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := kube.NetworkingV1().NetworkPolicies(namespace).Get(t.Context(), "kcp-fleet", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func (f *fleet) keepsRoles(t *testing.T) {
	w := f.workspace(t, on("east"))
	w.Kubectl(t, "create", "role", "reader", "-n", "default", "--verb=get", "--resource=configmaps")
	w.Kubectl(t, "create", "rolebinding", "reader", "-n", "default", "--role=reader", "--user=someone")
	w.Apply(t, web)
	f.waitForCopies(t, w, "web", "east")
	roles, err := f.clusters["east"].kube.RbacV1().Roles(w.Name+"-default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(roles.Items) > 0 {
		t.Errorf("found the roles %v: %v", roles, err)
	}
}

func (f *fleet) syncsReferencedSecrets(t *testing.T) {
	w := f.workspace(t, on("east"))
	w.Kubectl(t, "create", "secret", "generic", "used", "-n", "default", "--from-literal=a=b")
	w.Kubectl(t, "create", "secret", "generic", "private", "-n", "default", "--from-literal=a=b")
	w.Apply(
		t,
		strings.ReplaceAll(web, "spec:\n      containers", "spec:\n      volumes: [{name: s, secret: {secretName: used}}]\n      containers"),
	)
	secrets := f.clusters["east"].kube.CoreV1().Secrets(w.Name + "-default")
	kcptest.Eventually(t, "the secret exists on the cluster", func(ctx context.Context) error {
		_, err := secrets.Get(ctx, "used", metav1.GetOptions{})
		return err
	})
	list, err := secrets.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("found %d secrets: %v", len(list.Items), err)
	}
	w.Apply(t, web)
	w.Kubectl(t, "delete", "deployment", "web", "-n", "default")
	kcptest.Eventually(t, "the secret is removed with its last reference", func(ctx context.Context) error {
		_, err := secrets.Get(ctx, "used", metav1.GetOptions{})
		return kcptest.Gone(err)
	})
}

func (f *fleet) respectsOthers(t *testing.T) {
	w := f.workspace(t, on("east"))
	w.Apply(t, web)
	f.waitForCopies(t, w, "web", "east")
	kube, namespace := f.clusters["east"].kube, w.Name+"-default"
	own := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "shared"}, Data: map[string]string{"owner": "the cluster"}}
	if _, err := kube.CoreV1().ConfigMaps(namespace).Create(t.Context(), own, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.Kubectl(t, "create", "configmap", "shared", "-n", "default", "--from-literal=owner=workspace")
	kcptest.Eventually(t, "the agent reports the conflict", func(ctx context.Context) error {
		if text := f.describe(ctx, w); !strings.Contains(text, "was not created by the fleet") {
			return errors.New(text)
		}
		return nil
	})
	w.Kubectl(t, "delete", "configmap", "shared", "-n", "default")
	w.Kubectl(t, "delete", "deployment", "web", "-n", "default")
	f.waitForCopies(t, w, "web", "")
	live, err := kube.CoreV1().ConfigMaps(namespace).Get(t.Context(), "shared", metav1.GetOptions{})
	if err != nil || live.Data["owner"] != "the cluster" || len(live.Annotations) > 0 || len(live.Labels) > 0 {
		t.Errorf("the ConfigMap of the cluster is %v: %v", live, err)
	}
}

func (f *fleet) respectsNamespaces(t *testing.T) {
	w := server.Cluster(t)
	kube := f.clusters["east"].kube
	name := w.Name + "-default"
	if _, err := kube.CoreV1().Namespaces().Create(
		t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{},
	); err != nil {
		t.Fatal(err)
	}
	f.bind(t, w, on("east"))
	w.Apply(t, web)
	kcptest.Eventually(t, "the agent reports the conflict", func(ctx context.Context) error {
		if text := f.describe(ctx, w); !strings.Contains(text, "namespace \""+name+"\"") {
			return errors.New(text)
		}
		return nil
	})
	f.waitForCopies(t, w, "web", "")
	live, err := kube.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || live.Labels[v1alpha1.ClusterLabel] != "" {
		t.Errorf("the namespace is %v: %v", live, err)
	}
}

func (f *fleet) limitsAgent(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", f.clusters["east"].kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for what, attempt := range map[string]func() error{
		"a ConfigMap in kube-system": func() error {
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
			_, err := agent.CoreV1().ConfigMaps("kube-system").Create(t.Context(), m, metav1.CreateOptions{})
			return err
		},
		"the deletion of a namespace that it has not created": func() error {
			return agent.CoreV1().Namespaces().Delete(t.Context(), "kcp-fleet", metav1.DeleteOptions{})
		},
		"the label of another cluster for a new namespace": func() error {
			n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{v1alpha1.ClusterLabel: "west"}}}
			_, err := agent.CoreV1().Namespaces().Create(t.Context(), n, metav1.CreateOptions{})
			return err
		},
	} {
		if err := attempt(); err == nil || !strings.Contains(err.Error(), "writes only to the namespaces") {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

// as returns a client of a view, with the certificate of the agent of a cluster.
func (f *fleet) as(t *testing.T, agent, view string) dynamic.Interface {
	t.Helper()
	secret, err := f.clusters[agent].kube.CoreV1().Secrets("kcp-fleet").Get(t.Context(), "kcp-fleet-agent-"+agent, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(&rest.Config{Host: f.url + "/services/fleet/" + view, TLSClientConfig: rest.TLSClientConfig{
		CAFile: f.caFile(), CertData: secret.Data[corev1.TLSCertKey], KeyData: secret.Data[corev1.TLSPrivateKeyKey],
	}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (f *fleet) isolatesAgents(t *testing.T) {
	w := f.workspace(t, on("east"))
	w.Apply(t, web)
	f.waitForCopies(t, w, "web", "east")
	own, err := f.as(t, "east", "east").Resource(workloads).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(own.Items) == 0 {
		t.Fatalf("the agent of east sees %d workloads: %v", len(own.Items), err)
	}
	foreign := f.as(t, "west", "east")
	for _, resource := range []string{"clusters", "assignments", "workloads"} {
		gvr := v1alpha1.SchemeGroupVersion.WithResource(resource)
		if _, err := foreign.Resource(gvr).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("listing %s of another cluster: %v", resource, err)
		}
		if _, err := foreign.Resource(gvr).Watch(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("watching %s of another cluster: %v", resource, err)
		}
	}
	if _, err := foreign.Resource(workloads).UpdateStatus(t.Context(), &own.Items[0], metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("writing the status of another cluster: %v", err)
	}
	west := f.as(t, "west", "west")
	if _, err := west.Resource(workloads).Get(t.Context(), own.Items[0].GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("reading a workload of another cluster: %v", err)
	}
	if _, err := west.Resource(workloads).UpdateStatus(t.Context(), &own.Items[0], metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("writing the status of a workload of another cluster: %v", err)
	}
	if _, err := west.Resource(clusters).Get(t.Context(), "east", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("reading another cluster: %v", err)
	}
	list, err := west.Resource(clusters).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "west" {
		t.Errorf("the agent of west sees the clusters %v: %v", list, err)
	}
	found, err := west.Resource(assignments).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range found.Items {
		if a.GetLabels()[v1alpha1.ClusterLabel] != "west" {
			t.Errorf("the agent of west sees the assignment %v", a.Object)
		}
	}
	if err := west.Resource(workloads).Delete(t.Context(), own.Items[0].GetName(), metav1.DeleteOptions{}); err == nil {
		t.Error("an agent can delete workloads")
	}
}

func (f *fleet) limitsBootstrap(t *testing.T) {
	token, err := os.ReadFile(f.dir + "/east.token")
	if err != nil {
		t.Fatal(err)
	}
	view := func(name, token string) dynamic.Interface {
		client, err := dynamic.NewForConfig(&rest.Config{Host: f.url + "/services/fleet/" + name, BearerToken: token,
			TLSClientConfig: rest.TLSClientConfig{CAFile: f.caFile()}})
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	east := view("east", string(token))
	if _, err := east.Resource(workloads).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing workloads with a bootstrap token: %v", err)
	}
	if _, err := view("west", string(token)).Resource(clusters).Get(t.Context(), "west", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("reading another cluster with a bootstrap token: %v", err)
	}
	u, err := east.Resource(clusters).Get(t.Context(), "east", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	status, _ := u.Object["status"].(map[string]any)
	status["request"] = anotherRequest(t)
	if _, err := east.Resource(clusters).UpdateStatus(t.Context(), u, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("replacing the agent with a bootstrap token: %v", err)
	}
	// A tenant can create a service account of the same name in a workspace.
	tenant := server.Cluster(t)
	tenant.Kubectl(t, "create", "namespace", "kcp-fleet")
	tenant.Kubectl(t, "create", "serviceaccount", "east", "-n", "kcp-fleet")
	forged := tokenOf(t, tenant.Kube(t, kcptest.Masters), "kcp-fleet", "east")
	if _, err := view("east", forged).Resource(clusters).Get(t.Context(), "east", metav1.GetOptions{}); err == nil {
		t.Error("a service account of a tenant can read the cluster")
	}
}

// anotherRequest returns a certificate signing request for a new key.
func anotherRequest(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}
