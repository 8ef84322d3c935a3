package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/cli/internal/fleet"
)

// fleetImage returns the image of the fleet of the same release.
func fleetImage() string {
	tag := "latest"
	if build, ok := debug.ReadBuildInfo(); ok && strings.HasPrefix(build.Main.Version, "v") {
		tag = strings.ReplaceAll(build.Main.Version, "+", "-")
	}
	return "ghcr.io/kcplane/kcp-fleet:" + tag
}

// fleetJoin describes how to attach a cluster.
type fleetJoin struct {
	url, caFile, image string
	labels             map[string]string
	replace, update    bool
}

func (s *session) fleetJoin(invocation string) *cobra.Command {
	j := fleetJoin{}
	cmd := &cobra.Command{
		Use:   "join CLUSTER",
		Short: "Attach a cluster, and print the manifest of its agent",
		Args:  cobra.ExactArgs(1),
		Long: `Create a Cluster, and print the manifest of its agent, which you apply to the cluster. The manifest has a token that is valid for
one hour. With it the agent can only request a certificate, which you approve.

After an import, run the command again with --update, and apply the manifest: the agent needs permissions for the resource.`,
		Example: examples(invocation, `
			%[1]s join east --url https://fleet.example.com:6444 --ca-file fleet.crt | kubectl --kubeconfig east.kubeconfig apply -f -`),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return s.join(cmd.Context(), args[0], j) },
	}
	cmd.Flags().StringVar(&j.url, "url", "", "URL of the fleet's controller, as the cluster reaches it")
	cmd.Flags().StringVar(&j.caFile, "ca-file", "", "File with the certificate authority of that URL")
	cmd.Flags().StringVar(&j.image, "image", fleetImage(), "Image of the agent")
	cmd.Flags().StringToStringVar(&j.labels, "labels", nil, "Labels of the Cluster, which placements select by")
	cmd.Flags().BoolVar(&j.update, "update", false, "Print the manifest of an attached cluster, whose agent keeps its certificate")
	cmd.Flags().BoolVar(&j.replace, "replace", false, "End the certificate of the cluster's agent, and allow a new agent to request one")
	cmd.MarkFlagsMutuallyExclusive("update", "replace")
	cmd.MarkFlagsMutuallyExclusive("update", "labels")
	return cmd
}

// attach creates the Cluster, or finds the one that --update and --replace are about.
func (j fleetJoin) attach(ctx context.Context, objects dynamic.Interface, name string) error {
	if j.update {
		_, err := objects.Resource(fleetClusters).Get(ctx, name, metav1.GetOptions{})
		return missing(ctx, objects, err)
	}
	cluster := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "Cluster", "metadata": map[string]any{"name": name},
	}}
	cluster.SetLabels(j.labels)
	_, err := objects.Resource(fleetClusters).Create(ctx, cluster, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err) && j.replace:
		return nil
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%w: to print the manifest of its agent again, add --update; to replace its agent, add --replace", err)
	}
	return err
}

func (s *session) join(ctx context.Context, name string, j fleetJoin) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("invalid name of a cluster %q: %s", name, problems[0])
	}
	if j.url == "" {
		return errors.New("--url is required: the URL of the fleet's controller, as the cluster reaches it")
	}
	agent := fleet.Agent{Cluster: name, URL: j.url, Image: j.image}
	if j.caFile != "" {
		ca, err := os.ReadFile(j.caFile)
		if err != nil {
			return err
		}
		agent.CA = string(ca)
	}
	objects, kube, err := s.fleetClient(ctx)
	if err != nil {
		return err
	}
	export, err := getExport(ctx, objects)
	if err != nil {
		return err
	}
	if err := j.attach(ctx, objects, name); err != nil {
		return err
	}
	if j.replace {
		// Without an approved key, the certificates of the former agent are not valid.
		if err := patchCluster(ctx, objects, name, `{"spec":{"approvedKey":null}}`); err != nil {
			return err
		}
		patch := `{"status":{"request":null,"requestedKey":null,"certificate":null}}`
		if err := patchCluster(ctx, objects, name, patch, "status"); err != nil {
			return err
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err = kube.CoreV1().ServiceAccounts(v1alpha1.Namespace).Create(ctx, account, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	hour := int64(time.Hour / time.Second)
	token, err := kube.CoreV1().ServiceAccounts(v1alpha1.Namespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	agent.Token = token.Status.Token
	for _, r := range export.Spec.Resources {
		if r.Storage.Virtual != nil {
			agent.Pods = true
		} else if r.Group != v1alpha1.SchemeGroupVersion.Group {
			agent.Resources = append(agent.Resources, schema.GroupResource{Group: r.Group, Resource: r.Name})
		}
	}
	manifest, err := agent.Manifest()
	if err == nil {
		_, err = fmt.Fprint(s.Out, manifest)
	}
	return err
}
