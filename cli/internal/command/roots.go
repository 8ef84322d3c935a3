package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Plugin returns the command of the plugin with the given name: ws, workspace, create-workspace, or kcp for any other name.
func Plugin(name string, streams genericiooptions.IOStreams) *cobra.Command {
	switch name {
	case "ws", "workspace":
		return workspacePlugin(name, streams)
	case "create-workspace":
		return createWorkspacePlugin(streams)
	}
	return kcpPlugin(streams)
}

// workspacePlugin returns the plugin that kubectl runs as kubectl <name>, which is ws or workspace.
func workspacePlugin(name string, streams genericiooptions.IOStreams) *cobra.Command {
	invocation := "kubectl " + name
	root := &cobra.Command{Use: "kubectl-" + name + " [WORKSPACE]",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: invocation}}
	newSession(root, streams).workspaces(root, invocation)
	return root
}

// createWorkspacePlugin returns the plugin that kubectl runs as kubectl create workspace.
func createWorkspacePlugin(streams genericiooptions.IOStreams) *cobra.Command {
	invocation := "kubectl create workspace"
	root := &cobra.Command{Use: "kubectl-create-workspace NAME",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: invocation}}
	newSession(root, streams).creates(root, invocation)
	return root
}

// kcpPlugin returns the plugin that kubectl runs as kubectl kcp.
func kcpPlugin(streams genericiooptions.IOStreams) *cobra.Command {
	invocation := "kubectl kcp"
	root := &cobra.Command{
		Use:         "kubectl-kcp",
		Short:       "Manage kcp workspaces and APIs",
		Long:        "Manage workspaces and APIs on a kcp server.",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: invocation},
	}
	s := newSession(root, streams)
	workspace := &cobra.Command{Use: "workspace [WORKSPACE]", Aliases: []string{"ws", "workspaces"}}
	s.workspaces(workspace, invocation+" workspace")
	root.AddCommand(workspace, s.bind(invocation+" bind"), s.claims(invocation+" claims"), s.get(invocation+" get"), s.crd(invocation+" crd"),
		s.move(invocation+" move"), s.quickstart(invocation+" quickstart"), s.check(invocation+" check"), s.orphans(invocation+" orphans"),
		s.installations(invocation+" installation"), s.fleet(invocation+" fleet"))
	return root
}

// workspaces adds switching between workspaces to cmd, and subcommands for everything else about workspaces.
func (s *session) workspaces(cmd *cobra.Command, invocation string) {
	cmd.Short = "Switch between, create and list workspaces"
	cmd.Long = navigation + "\n\nTo switch to a workspace that has the name of a subcommand, run the subcommand use."
	cmd.Example = examples(invocation, navigationExamples)
	s.navigates(cmd)
	create := &cobra.Command{Use: "create NAME"}
	s.creates(create, invocation+" create")
	cmd.AddCommand(s.use(invocation), s.current(invocation), s.tree(invocation), create, s.createContext(invocation))
}

// group returns a command that only groups subcommands.
func group(name, short, long, example string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:     name,
		Short:   short,
		Long:    long,
		Example: example,
		Args:    atMost(0, "a subcommand"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(below...)
	return cmd
}

// examples inserts the invocation of the command into text and indents it like the rest of the help.
func examples(invocation, text string) string {
	lines := strings.Split(strings.Trim(fmt.Sprintf(text, invocation), "\n"), "\n")
	for i, line := range lines {
		if line = strings.TrimSpace(line); line != "" {
			line = "  " + line
		}
		lines[i] = line
	}
	return strings.Join(lines, "\n")
}
