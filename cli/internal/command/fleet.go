package command

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/cli/internal/fleet"
	"github.com/kcplane/kcp/internal/crd/pull"
)

var fleetClusters = v1alpha1.SchemeGroupVersion.WithResource("clusters")

// fleet returns the command that groups everything about the fleet.
func (s *session) fleet(invocation string) *cobra.Command {
	return group("fleet", "Run objects of workspaces on attached clusters",
		"Manage the fleet: Kubernetes clusters that run objects of workspaces. Run these commands in the workspace of the fleet's provider.",
		examples(invocation, `
			# Install the fleet in the current workspace
			%[1]s init | kubectl apply --server-side -f -

			# Offer the APIs of a cluster to all workspaces that bind the fleet
			%[1]s import deployments.apps services --from-kubeconfig east.kubeconfig

			# Attach a cluster
			%[1]s join east --url https://fleet.example.com:6444 | kubectl --kubeconfig east.kubeconfig apply -f -
			%[1]s approve east`),
		s.fleetInit(invocation), s.fleetImport(invocation), s.fleetJoin(invocation), s.fleetApprove(invocation),
		s.fleetFlag(invocation, "cordon", "Keep new assignments away from a cluster", `{"spec":{"cordon":true}}`),
		s.fleetFlag(invocation, "drain", "Move everything that runs on a cluster to others", `{"spec":{"cordon":true,"drain":true}}`),
		s.fleetFlag(invocation, "uncordon", "Allow new assignments to a cluster again", `{"spec":{"cordon":false,"drain":false}}`))
}

func (s *session) fleetInit(string) *cobra.Command {
	var output format
	cmd := &cobra.Command{
		Use: "init", Short: "Print the objects of the fleet's workspace", Args: atMost(0, "no arguments"),
		Long: "Print the manifests that install the fleet in a workspace: its definitions, its APIExport, and the role of its controller.",
		RunE: func(*cobra.Command, []string) error {
			objects, err := fleet.Provider()
			if err != nil {
				return err
			}
			return documents(s.Out, output, objects)
		},
	}
	output.addChoice(cmd, manifests)
	return cmd
}

// fleetClient returns clients of the workspace of the provider.
func (s *session) fleetClient(ctx context.Context) (dynamic.Interface, kubernetes.Interface, error) {
	p, err := s.inWorkspace(ctx)
	if err != nil {
		return nil, nil, err
	}
	config, err := s.restConfig(p)
	if err != nil {
		return nil, nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	kube, err := kubernetes.NewForConfig(config)
	return objects, kube, err
}

func patchCluster(ctx context.Context, objects dynamic.Interface, name, patch string, below ...string) error {
	_, err := objects.Resource(fleetClusters).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, below...)
	return missing(ctx, objects, err)
}

// missing returns why something is not found: the workspace may not be that of the fleet.
func missing(ctx context.Context, objects dynamic.Interface, err error) error {
	if apierrors.IsNotFound(err) {
		if _, absent := getExport(ctx, objects); errors.Is(absent, errNoFleet) {
			return absent
		}
	}
	return err
}

var errNoFleet = errors.New(
	"the workspace has no APIExport \"fleet\": switch to the workspace of the fleet, or install it with kubectl kcp fleet init")

func (s *session) fleetFlag(_, name, short, patch string) *cobra.Command {
	return &cobra.Command{
		Use: name + " CLUSTER", Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			objects, _, err := s.fleetClient(cmd.Context())
			if err != nil {
				return err
			}
			if err := patchCluster(cmd.Context(), objects, args[0], patch); err != nil {
				return err
			}
			_, err = fmt.Fprintf(s.Out, "Cluster %q changed: %s\n", args[0], name)
			return err
		},
	}
}

func (s *session) fleetApprove(string) *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:   "approve CLUSTER",
		Short: "Issue the first certificate of an agent",
		Args:  cobra.ExactArgs(1),
		Long: `Approve the key for which the agent of a cluster requests its first certificate. Compare the key with the one in the
log of the agent, or pass that one with --key.`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			objects, _, err := s.fleetClient(cmd.Context())
			if err != nil {
				return err
			}
			u, err := objects.Resource(fleetClusters).Get(cmd.Context(), args[0], metav1.GetOptions{})
			if err != nil {
				return missing(cmd.Context(), objects, err)
			}
			requested, _, _ := unstructured.NestedString(u.Object, "status", "requestedKey")
			approved, _, _ := unstructured.NestedString(u.Object, "spec", "approvedKey")
			certificate, _, _ := unstructured.NestedString(u.Object, "status", "certificate")
			switch {
			case requested == "":
				return fmt.Errorf("the agent of cluster %q has not requested a certificate yet", args[0])
			case key != "" && key != requested:
				return fmt.Errorf("the agent of cluster %q requests a certificate for the key %s, not for %s", args[0], requested, key)
			case certificate != "" && approved != "" && approved != requested:
				return fmt.Errorf("the agent of cluster %q has a certificate already, and renews it itself; to replace the agent, "+
					"run kubectl kcp fleet join --replace", args[0])
			}
			patch := fmt.Sprintf(`{"spec":{"approvedKey":%q}}`, requested)
			if err = patchCluster(cmd.Context(), objects, args[0], patch); err != nil {
				return err
			}
			_, err = fmt.Fprintf(s.Out, "Cluster %q approved: key %s\n", args[0], requested)
			return err
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "Approve only this key")
	return cmd
}

var (
	fleetExports = apisv1alpha2.SchemeGroupVersion.WithResource("apiexports")
	fleetSchemas = apisv1alpha1.SchemeGroupVersion.WithResource("apiresourceschemas")
)

func getExport(ctx context.Context, objects dynamic.Interface) (*apisv1alpha2.APIExport, error) {
	u, err := objects.Resource(fleetExports).Get(ctx, v1alpha1.Export, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, errNoFleet
	}
	if err != nil {
		return nil, err
	}
	export := &apisv1alpha2.APIExport{}
	return export, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, export)
}

func (s *session) fleetImport(invocation string) *cobra.Command {
	var kubeconfig, kubeContext, controller string
	cmd := &cobra.Command{
		Use:   "import RESOURCE...",
		Short: "Offer resources of a cluster to the workspaces that bind the fleet",
		Args:  cobra.MinimumNArgs(1),
		Long: `Pull the definitions of namespaced resources from a cluster, as kubectl kcp crd pull does, and add them to the APIExport of the
fleet. Importing a resource again replaces its schema.

Pods are not stored in workspaces: kcp reads them from the clusters, through the fleet's controller. They require --url.`,
		Example: examples(invocation, `
			%[1]s import deployments.apps statefulsets.apps jobs.batch services ingresses.networking.k8s.io --from-kubeconfig east.kubeconfig`),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.importResources(cmd.Context(), args, kubeconfig, kubeContext, controller)
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "from-kubeconfig", "", "Kubeconfig file of the cluster")
	cmd.Flags().StringVar(&kubeContext, "from-context", "", "Context in that file")
	cmd.Flags().StringVar(&controller, "url", "", "URL of the fleet's controller, as kcp reaches it; only for pods")
	return cmd
}

func (s *session) importResources(ctx context.Context, names []string, kubeconfig, kubeContext, controller string) error {
	if kubeconfig == "" {
		return errors.New("--from-kubeconfig is required: the kubeconfig file of the cluster")
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: kubeContext}).ClientConfig()
	if err != nil {
		return fmt.Errorf("--from-kubeconfig: %w", err)
	}
	cluster, err := pull.New(config)
	if err != nil {
		return err
	}
	pulled, err := cluster.Pull(ctx, names)
	if err != nil {
		return fmt.Errorf("pulling from %s: %w", config.Host, err)
	}
	objects, _, err := s.fleetClient(ctx)
	if err != nil {
		return err
	}
	var exported []apisv1alpha2.ResourceSchema
	for _, definition := range pulled.Definitions {
		if definition.Spec.Scope != "Namespaced" {
			return fmt.Errorf("%s is cluster-scoped: the fleet runs only objects in namespaces", definition.Name)
		}
		if err := readPods(ctx, objects, definition, controller); err != nil {
			return err
		}
		taken, err := fleet.Schema(definition)
		if err != nil {
			return fmt.Errorf("%s: %w", definition.Name, err)
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(taken)
		if err != nil {
			return err
		}
		_, err = objects.Resource(fleetSchemas).Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("%s: %w", taken.Name, err)
		}
		if fleet.IsPods(definition) {
			exported = append(exported, fleet.ExportedPods(taken))
		} else {
			exported = append(exported, fleet.Exported(taken))
		}
	}
	if err := addToExport(ctx, objects, exported); err != nil {
		return err
	}
	for _, r := range exported {
		if _, err := fmt.Fprintf(s.Out, "Imported %s as %s\n", schema.GroupResource{Group: r.Group, Resource: r.Name}, r.Schema); err != nil {
			return err
		}
	}
	return nil
}

// addToExport adds resources to the APIExport of the fleet, or replaces their schemas.
func addToExport(ctx context.Context, objects dynamic.Interface, exported []apisv1alpha2.ResourceSchema) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		export, err := getExport(ctx, objects)
		if err != nil {
			return err
		}
		for _, r := range exported {
			same := func(e apisv1alpha2.ResourceSchema) bool { return e.Group == r.Group && e.Name == r.Name }
			if i := slices.IndexFunc(export.Spec.Resources, same); i >= 0 {
				export.Spec.Resources[i] = r
			} else {
				export.Spec.Resources = append(export.Spec.Resources, r)
			}
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(export)
		if err != nil {
			return err
		}
		_, err = objects.Resource(fleetExports).Update(ctx, &unstructured.Unstructured{Object: content}, metav1.UpdateOptions{})
		return err
	})
}
