package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/scheme"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// check reports whether an operator is ready.
type check struct {
	client.Reader
	served     discovery.ServerResourcesInterface
	deployment client.ObjectKey
	leader     bool
	now        func() time.Time
}

func checkCommand() *cobra.Command {
	var c check
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "check",
		Short: "Check that the operator is ready, and report what is missing",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := ctrl.GetConfig()
			if err != nil {
				return err
			}
			if c.Reader, err = client.New(config, client.Options{Scheme: scheme.New()}); err != nil {
				return err
			}
			if c.served, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
				return err
			}
			c.now = time.Now
			ctx, cancel := context.WithTimeout(command.Context(), timeout)
			defer cancel()
			return c.await(ctx, command.OutOrStdout())
		},
	}
	fs := command.Flags()
	fs.StringVar(&c.deployment.Namespace, "namespace", "kcp-operator", "Namespace of the operator.")
	fs.StringVar(&c.deployment.Name, "deployment", "kcp-operator", "Deployment of the operator.")
	fs.BoolVar(&c.leader, "leader", true, "Whether the operator uses leader election.")
	fs.DurationVar(&timeout, "timeout", 2*time.Minute, "How long to wait until the operator is ready.")
	return command
}

// await repeats the checks until they succeed or the context ends, and prints the results.
func (c *check) await(ctx context.Context, out io.Writer) error {
	for _, look := range []func(context.Context) (string, error){c.kinds, c.certManager, c.available, c.working} {
		var found string
		var missing error
		err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
			found, missing = look(ctx)
			return missing == nil || errors.As(missing, &hopeless{}), nil
		})
		if err := cmp.Or(missing, err); err != nil {
			return err
		}
		if found != "" {
			fmt.Fprintln(out, found)
		}
	}
	return nil
}

// kinds checks that the cluster serves all kinds of the operator.
func (c *check) kinds(context.Context) (string, error) {
	var names []string
	for kind, of := range scheme.New().KnownTypes(v1alpha1.SchemeGroupVersion) {
		if _, ok := reflect.New(of).Interface().(client.Object); ok {
			names = append(names, kind)
		}
	}
	slices.Sort(names)
	return c.has(v1alpha1.SchemeGroupVersion, names, "install the definitions of the operator, which its chart has with crds.create=true")
}

func (c *check) certManager(context.Context) (string, error) {
	return c.has(certmanager.SchemeGroupVersion, []string{"Certificate", certmanager.IssuerKind},
		"install cert-manager: https://cert-manager.io/docs/installation/")
}

// has checks that a version of an API has kinds.
func (c *check) has(version schema.GroupVersion, kinds []string, otherwise string) (string, error) {
	list, err := c.served.ServerResourcesForGroupVersion(version.String())
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("discovering the kinds of %s: %w", version, err)
	}
	there := map[string]bool{}
	if list != nil {
		for _, resource := range list.APIResources {
			there[resource.Kind] = true
		}
	}
	if missing := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return there[kind] }); len(missing) > 0 {
		return "", fmt.Errorf("the cluster has no %s of %s: %s", strings.Join(missing, ", "), version, otherwise)
	}
	return fmt.Sprintf("The cluster has %s of %s.", strings.Join(kinds, ", "), version), nil
}

// available checks that a pod of the operator is ready, and that no pod with an older template runs.
func (c *check) available(ctx context.Context) (string, error) {
	deployment := &appsv1.Deployment{}
	if err := c.Get(ctx, c.deployment, deployment); err != nil {
		return "", fmt.Errorf("getting the Deployment of the operator: %w", err)
	}
	status := deployment.Status
	if status.ObservedGeneration < deployment.Generation || status.AvailableReplicas == 0 || status.UpdatedReplicas < status.Replicas {
		trouble, err := c.trouble(ctx, deployment)
		if err != nil {
			return "", err
		}
		err = fmt.Errorf("of %d pods of Deployment %s %d are available and %d are up to date%s: kubectl describe deployment --namespace %s %s",
			status.Replicas, c.deployment, status.AvailableReplicas, status.UpdatedReplicas, trouble, c.deployment.Namespace, c.deployment.Name)
		if trouble.Stalled() {
			return "", hopeless{err}
		}
		return "", err
	}
	return fmt.Sprintf("Deployment %s is available.", c.deployment), nil
}

// hopeless is an error for which a retry is useless.
type hopeless struct{ error }

// trouble returns why pods of the operator do not run, such as an image that cannot be pulled.
func (c *check) trouble(ctx context.Context, deployment *appsv1.Deployment) (workload.Trouble, error) {
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return workload.Trouble{}, err
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(deployment.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return workload.Trouble{}, fmt.Errorf("listing the pods of the operator: %w", err)
	}
	return workload.FindTrouble(pods.Items, "correct image.repository and image.tag in the values of the chart, or set imagePullSecrets", "",
		c.now().Add(ahead)), nil
}

// earlier than for objects of the operator, because a user waits for the result
const ahead = 150 * time.Second

// working checks that one of the pods has recently renewed the leader election Lease.
func (c *check) working(ctx context.Context) (string, error) {
	if !c.leader {
		return "", nil
	}
	lease := &coordinationv1.Lease{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.deployment.Namespace, Name: leaseName}, lease); err != nil {
		return "", fmt.Errorf("no pod of the operator has become leader yet: %w", err)
	}
	working := holder(lease, c.now())
	if working == "" {
		return "", fmt.Errorf("no pod of the operator holds the Lease %s/%s: kubectl logs --namespace %s deployment/%s",
			c.deployment.Namespace, leaseName, c.deployment.Namespace, c.deployment.Name)
	}
	pod, _, _ := strings.Cut(working, "_")
	return fmt.Sprintf("Pod %s works.", pod), nil
}
