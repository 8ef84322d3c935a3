package command

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/cli/apis"
	"github.com/kcplane/kcp/cli/kubeconfig"
	"github.com/kcplane/kcp/cli/location"
	"github.com/kcplane/kcp/cli/picker"
	"github.com/kcplane/kcp/cli/workspaces"
)

// use is the command that goes to another workspace.
func (s *session) use(invocation string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "use [WORKSPACE]",
		Aliases: []string{"cd"},
		Short:   "Go to another workspace",
		Long:    navigation,
		Example: examples(invocation+" use", navigationExamples),
	}
	s.navigates(cmd)
	return cmd
}

const navigation = `Go to another workspace, so that kubectl works there.

WORKSPACE is one of
  team, team:app   a workspace below the current one
  :root:org:team   a workspace by its path; ":" alone is the root
  ..               the one above; .. can be a part of a path too
  -                the previous one
  ~                the home workspace, also without an argument, and where the shell replaces ~ by the home directory
  .                the current one, which is printed`

const navigationExamples = `
	# Go to a workspace by its path
	%[1]s :root:org:team

	# Go to the workspace app below, then back up, then to where you were before
	%[1]s app
	%[1]s ..
	%[1]s -

	# Go home
	%[1]s ~

	# Choose from a list
	%[1]s -i`

// navigates makes cmd go to the workspace that is its argument.
func (s *session) navigates(cmd *cobra.Command) {
	var interactive, short bool
	var output format
	output.addTo(cmd)
	cmd.Flags().BoolVar(&short, "short", false, "Print the path alone")
	cmd.Flags().BoolVarP(&interactive, "interactive", "i", false, "Choose from the workspaces on the terminal")
	cmd.Args = noMoreThan(1, "one workspace")
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

// enter makes a place the current workspace, if the user may be there.
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

// goBack exchanges the current and the previous place. The user of the previous one may be another.
func (s *session) goBack(ctx context.Context, p *place, output format) error {
	if s.workspace != "" {
		return errors.New("- is the previous workspace wherever one is; it does not go together with --workspace")
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

// arrive saves the change and says where the user is.
func (s *session) arrive(ctx context.Context, p *place, to location.Location, output format, save func() error) error {
	if err := save(); err != nil {
		return err
	}
	a, _ := p.about(ctx, to) // that it can be entered is known; its type is a courtesy
	if err := a.print(s.Out, output); err != nil {
		return err
	}
	if a.Phase != "" && a.Phase != corev1alpha1.LogicalClusterPhaseReady {
		_, _ = fmt.Fprintf(s.ErrOut, "Warning: it is not ready: its phase is %s.\n", a.Phase)
	}
	if to.IsWorkspace() {
		bindings, _ := apis.New(p.client).Bindings(ctx, to) // so are its claims
		for i := range bindings {
			s.warnOfClaims(&bindings[i])
		}
	}
	return nil
}

// choose lets the user choose a workspace on the terminal, starting at name.
func (s *session) choose(ctx context.Context, name string, output format) error {
	if !picker.IsTerminal(s.In, s.ErrOut) {
		return errors.New("--interactive needs a terminal; name the workspace instead")
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
		return fmt.Errorf("the workspace stays the same: %w", err)
	}
	return s.enter(ctx, p, to, output)
}
