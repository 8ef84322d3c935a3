package command

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/cli/internal/apis"
	"github.com/kcplane/kcp/cli/internal/kubeconfig"
	"github.com/kcplane/kcp/cli/internal/location"
	"github.com/kcplane/kcp/cli/internal/picker"
	"github.com/kcplane/kcp/cli/internal/workspaces"
)

// use returns the command that switches to another workspace.
func (s *session) use(invocation string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "use [WORKSPACE]",
		Aliases: []string{"cd"},
		Short:   "Switch to another workspace",
		Long:    navigation,
		Example: examples(invocation+" use", navigationExamples),
	}
	s.navigates(cmd)
	return cmd
}

const navigation = `Switch to another workspace. All kubectl commands then work in it.

WORKSPACE is one of
  team, team:app   a path relative to the current workspace
  :root:org:team   an absolute path; ":" is the root workspace
  ..               the parent workspace; can also be part of a path
  -                the previous workspace
  ~                your home workspace, which is the default; works although the shell expands ~ to the home directory
  .                the current workspace: print it and stay`

const navigationExamples = `
	# Switch to a workspace by its path
	%[1]s :root:org:team

	# Switch to the child workspace app, then to its parent, then to the previous workspace
	%[1]s app
	%[1]s ..
	%[1]s -

	# Switch to your home workspace
	%[1]s ~

	# Choose a workspace interactively
	%[1]s -i`

// navigates makes cmd switch to the workspace in its argument.
func (s *session) navigates(cmd *cobra.Command) {
	var interactive, short bool
	var output format
	output.addTo(cmd)
	cmd.Flags().BoolVar(&short, "short", false, "Print only the path")
	cmd.Flags().BoolVarP(&interactive, "interactive", "i", false, "Choose a workspace interactively")
	cmd.Args = atMost(1, "at most one workspace")
	cmd.ValidArgsFunction = s.completeWorkspaces
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := "~"
		if len(args) > 0 {
			name = args[0]
		}
		if short && output == "" {
			output = asName
		}
		if interactive {
			if len(args) == 0 {
				name = "."
			}
			return s.choose(cmd.Context(), name, output)
		}
		return s.goTo(cmd.Context(), name, output)
	}
}

func (s *session) goTo(ctx context.Context, name string, output format) error {
	if name == "." {
		return s.printCurrent(ctx, false, output)
	}
	p, err := s.open(ctx)
	if err != nil {
		return err
	}
	if name == "-" {
		return s.goBack(ctx, p, output)
	}
	to, err := s.resolve(ctx, p, name)
	if err != nil {
		return err
	}
	return s.enter(ctx, p, to, output)
}

// enter makes a location the current workspace after checking that the user has access.
func (s *session) enter(ctx context.Context, p *place, to location.Location, output format) error {
	if err := p.client.Verify(ctx, to); err != nil {
		return err
	}
	changed, err := kubeconfig.Enter(p.config, p.overrides, to.URL())
	if err != nil {
		return err
	}
	return s.arrive(ctx, p, to, output, func() error { return kubeconfig.Save(p.access, changed) })
}

// goBack swaps the current and the previous workspace. The previous one may use other credentials.
func (s *session) goBack(ctx context.Context, p *place, output format) error {
	if s.workspace != "" {
		return errors.New("\"-\" cannot be combined with --workspace: it always is the previous workspace")
	}
	changed, err := kubeconfig.Return(p.config)
	if err != nil {
		return err
	}
	previous, none := kubeconfig.Previous, ""
	s.flags.Context, s.flags.ClusterName, s.flags.AuthInfoName, s.flags.APIServer = &previous, &none, &none, &none
	before, err := s.open(ctx)
	if err != nil {
		return err
	}
	if before.IsWorkspace() {
		if err := before.client.Verify(ctx, before.Location); err != nil {
			return err
		}
	}
	return s.arrive(ctx, before, before.Location, output, func() error { return kubeconfig.Save(p.access, changed) })
}

// arrive saves the change and prints the current workspace.
func (s *session) arrive(ctx context.Context, p *place, to location.Location, output format, save func() error) error {
	if err := save(); err != nil {
		return err
	}
	a, _ := p.about(ctx, to) // access is verified already; an unknown type is not an error
	if err := a.print(s.Out, output); err != nil {
		return err
	}
	if a.Phase != "" && a.Phase != corev1alpha1.LogicalClusterPhaseReady {
		_, _ = fmt.Fprintf(s.ErrOut, "Warning: the workspace is not ready: phase is %s.\n", a.Phase)
	}
	if to.IsWorkspace() {
		bindings, _ := apis.New(p.client).Bindings(ctx, to) // nor are unknown claims
		for i := range bindings {
			s.warnOfClaims(&bindings[i])
		}
	}
	return nil
}

// choose lets the user choose a workspace interactively, starting at name.
func (s *session) choose(ctx context.Context, name string, output format) error {
	if !picker.IsTerminal(s.In, s.ErrOut) {
		return errors.New("--interactive requires a terminal; pass the workspace as an argument instead")
	}
	p, err := s.open(ctx)
	if err != nil {
		return err
	}
	start := p.Location
	if name != "." || start.IsWorkspace() {
		if start, err = s.resolve(ctx, p, name); err != nil {
			return err
		}
	} else {
		start = start.At(location.Root)
	}
	in, out := s.In.(*os.File), s.ErrOut.(*os.File)
	to, err := picker.Choose(in, out, start, func(l location.Location) ([]string, error) {
		children, _, err := p.client.Children(ctx, l, 20*workspaces.Page)
		names := make([]string, len(children))
		for i := range children {
			names[i] = children[i].Name
		}
		return names, err
	})
	if err != nil {
		return fmt.Errorf("current workspace unchanged: %w", err)
	}
	return s.enter(ctx, p, to, output)
}
