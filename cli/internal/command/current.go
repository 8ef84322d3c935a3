package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/cli/internal/location"
)

// about describes a workspace, as printed in JSON and YAML.
type about struct {
	Path string `json:"path,omitempty"`
	// Mounts is the path of the workspace that is mounted at Path.
	Mounts  string                           `json:"mounts,omitempty"`
	Type    string                           `json:"type,omitempty"`
	Cluster string                           `json:"cluster,omitempty"`
	Phase   corev1alpha1.LogicalClusterPhase `json:"phase,omitempty"`
	URL     string                           `json:"URL"`
}

// about reads the logical cluster at l. Fields that the user may not read stay empty.
func (p *place) about(ctx context.Context, l location.Location) (about, error) {
	a := about{Path: l.Cluster(), URL: l.URL()}
	if !l.IsWorkspace() {
		return a, nil
	}
	lc, err := p.client.LogicalCluster(ctx, l)
	if err != nil {
		if apierrors.IsForbidden(err) {
			err = nil
		}
		return a, err
	}
	switch path := lc.Annotations[corev1alpha1.PathAnnotation]; {
	case path == "" || path == a.Path:
	case l.IsCanonical(): // the LogicalCluster is that of another workspace
		a.Mounts = path
	default:
		a.Path = path
	}
	a.Type, a.Cluster, a.Phase = lc.Annotations[tenancyv1alpha1.TypeAnnotation],
		lc.Annotations[corev1alpha1.ClusterAnnotation], lc.Status.Phase
	return a, nil
}

// announce prints the current workspace as a sentence.
func (a about) announce(w io.Writer) error {
	var err error
	switch {
	case a.Path == "":
		_, err = fmt.Fprintf(w, "Current workspace is the URL %q.\n", a.URL)
	case a.Mounts != "":
		_, err = fmt.Fprintf(w, "Current workspace is %q, a mount of %q.\n", a.Path, a.Mounts)
	case a.Type == "":
		_, err = fmt.Fprintf(w, "Current workspace is %q.\n", a.Path)
	default:
		_, err = fmt.Fprintf(w, "Current workspace is %q (type %s).\n", a.Path, a.Type)
	}
	return err
}

func (a about) print(w io.Writer, f format) error {
	switch f {
	case asJSON, asYAML:
		return encode(w, f, a)
	case asWide:
		return table(w, []string{"PATH", "TYPE", "PHASE", "CLUSTER", "URL"}, []string{a.Path, a.Type, string(a.Phase), a.Cluster, a.URL})
	case asName:
		return a.short(w)
	}
	return a.announce(w)
}

func (a about) short(w io.Writer) error {
	name := a.Path
	if name == "" {
		name = a.URL
	}
	_, err := fmt.Fprintln(w, name)
	return err
}

// current returns the command that prints the current workspace.
func (s *session) current(invocation string) *cobra.Command {
	var short bool
	var output format
	cmd := &cobra.Command{
		Use:   "current",
		Short: "Print the current workspace",
		Long:  "Print the workspace that kubectl commands currently work in.",
		Example: examples(invocation, `
			# Print the current workspace
			%[1]s current

			# Print only its path, for scripts and prompts
			%[1]s current --short

			# Print its type, phase, logical cluster and URL too
			%[1]s current -o yaml`),
		Args:              atMost(0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.printCurrent(cmd.Context(), short, output)
		},
	}
	cmd.Flags().BoolVar(&short, "short", false, "Print only the path")
	output.addTo(cmd)
	return cmd
}

func (s *session) printCurrent(ctx context.Context, short bool, output format) error {
	p, err := s.open(ctx)
	if err != nil {
		return err
	}
	short = (short && output == "") || output == asName
	if short && (!p.IsWorkspace() || p.IsCanonical()) {
		return about{Path: p.Cluster(), URL: p.URL()}.short(s.Out) // keeps shell prompts fast: no request to the server
	}
	a, failed := p.about(ctx, p.Location)
	if short {
		err = a.short(s.Out)
	} else {
		err = a.print(s.Out, output)
	}
	if failed != nil {
		return failed
	}
	return err
}
