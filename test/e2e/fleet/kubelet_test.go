package fleet

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// kubelet stands in for the kubelet of a node: its pods have logs, commands and ports, and do not run.
type kubelet struct{}

// ExecInContainer implements remotecommand.Executor: it prints the command.
func (kubelet) ExecInContainer(_ context.Context, pod, _, _ string, command []string, _ io.Reader, out, _ io.WriteCloser, _ bool,
	_ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	_, err := fmt.Fprintf(out, "%s runs %s\n", pod, strings.Join(command, " "))
	return err
}

// PortForward implements portforward.PortForwarder: it repeats a line.
func (kubelet) PortForward(_ context.Context, pod, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	line := make([]byte, 6)
	if _, err := io.ReadFull(stream, line); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stream, "%s at %d: %s", pod, port, line)
	return err
}

// runKubelet adds a node with a kubelet to a cluster.
func runKubelet(t *testing.T, c *attached) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "a line of %s in %s\n", r.PathValue("pod"), r.PathValue("container"))
	})
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		options, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		remotecommand.ServeExec(w, r, kubelet{}, r.PathValue("pod"), "", r.PathValue("container"), r.Form["command"], options, time.Minute, time.Minute,
			remotecommand.SupportedStreamingProtocols)
	})
	mux.HandleFunc("/portForward/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) {
		options, err := portforward.NewV4Options(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(w, r, kubelet{}, r.PathValue("pod"), "", options, time.Minute, time.Minute, portforward.SupportedProtocols)
	})
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	_, text, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	ctx := kcptest.Context(t)
	node, err := c.kube.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	if _, err := c.kube.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// createPod creates a pod on the node, which has no controller that would do it.
func (c *attached) createPod(t *testing.T, namespace, name string) {
	t.Helper()
	yes, no := true, false
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{
		NodeName:        "node",
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: "nginx", Image: "nginx", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}},
	}}
	kcptest.Eventually(t, "the pod "+name+" is created", func(ctx context.Context) error {
		_, err := c.kube.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	kcptest.Eventually(t, "the pod "+name+" runs", func(ctx context.Context) error {
		live, err := c.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		live.Status.Phase = corev1.PodRunning
		_, err = c.kube.CoreV1().Pods(namespace).UpdateStatus(ctx, live, metav1.UpdateOptions{})
		return err
	})
}
