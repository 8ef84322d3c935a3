// Package e2e tests the operator at a real API server, which validates, defaults and authorizes: its objects are valid and stable, its
// watches trigger reconciliations, and its role has exactly the necessary permissions.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/scheme"
	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/e2e/vanilla"
)

const root = "../.."

// host is the API server, with the definitions of the kinds of the operator and of cert-manager.
var host *rest.Config

// etcdEndpoint is the URL of an etcd that answers: the one of the API server.
var etcdEndpoint v1alpha1.EtcdEndpoint

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	paths, err := kcptest.CertManager.Find(context.Background(), 1)
	if err != nil {
		return 1, err
	}
	environment := &envtest.Environment{CRDDirectoryPaths: append(paths, filepath.Join(root, "config/crd/bases")), ErrorIfCRDPathMissing: true}
	if host, err = vanilla.Start(environment); err != nil {
		return 1, err
	}
	defer func() {
		if stopped := environment.Stop(); err == nil {
			err = stopped
		}
	}()
	host.QPS, host.Burst = 1000, 1000
	etcdEndpoint = v1alpha1.EtcdEndpoint(environment.ControlPlane.Etcd.URL.String())
	if err := prepare(context.Background()); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// prepare creates the namespaces, and a user with the operator's roles.
func prepare(ctx context.Context) error {
	c, err := client.New(host, client.Options{Scheme: scheme.New()})
	if err != nil {
		return err
	}
	content, err := os.ReadFile(filepath.Join(root, "charts/kcp-operator/files/rbac/role.yaml"))
	if err != nil {
		return err
	}
	first, second, _ := bytes.Cut(bytes.TrimPrefix(content, []byte("---\n")), []byte("\n---\n"))
	all, own := &rbacv1.ClusterRole{}, &rbacv1.Role{}
	if err := errors.Join(yaml.UnmarshalStrict(first, all), yaml.UnmarshalStrict(second, own)); err != nil {
		return err
	}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatortest.Namespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: own.Namespace}},
		all, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: all.Name}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: all.Name}},
		own, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: own.Namespace, Name: own.Name}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: own.Name}},
	} {
		if err := c.Create(ctx, object); err != nil {
			return err
		}
	}
	return applyPolicies(ctx, c)
}

// applyPolicies creates the policies that limit what the operator may write.
func applyPolicies(ctx context.Context, c client.Client) error {
	content, err := os.ReadFile(filepath.Join(root, "config/policy/policies.yaml"))
	if err != nil {
		return err
	}
	for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			return err
		}
		if err := c.Create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// user is the name of the operator's user.
const user = "system:serviceaccount:kcp-operator:kcp-operator"

// asOperator returns a client configuration with the operator's role.
func asOperator() *rest.Config { return as(user) }

func as(user string) *rest.Config {
	config := rest.CopyConfig(host)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	return config
}

// cluster returns the API server for a client configuration. An administrator may also create tokens and read events.
func cluster(t *testing.T, config *rest.Config) *operatortest.Cluster {
	t.Helper()
	scheme := scheme.New()
	if err := errors.Join(authenticationv1.AddToScheme(scheme), eventsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return operatortest.At(c)
}

// start runs the operator as in a cluster.
func start(t *testing.T, config *rest.Config) {
	t.Helper()
	options := operator.Options()
	options.Metrics.BindAddress = "0"
	options.Controller.SkipNameValidation = new(true) // one after the other, in one process
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := operator.Setup(ctx, mgr, operator.Config{Image: image, Namespace: "kcp-operator"}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
