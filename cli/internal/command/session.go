// Package command implements the commands of the kubectl plugins. The work is done by the packages next to it.
package command

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/cli/internal/kubeconfig"
	"github.com/kcplane/kcp/cli/internal/location"
	"github.com/kcplane/kcp/cli/internal/workspaces"
)

// session holds the flags and streams of one run of a plugin.
type session struct {
	genericiooptions.IOStreams
	flags     *genericclioptions.ConfigFlags
	workspace string
}

// newSession adds the flags that all commands of a plugin share.
func newSession(root *cobra.Command, streams genericiooptions.IOStreams) *session {
	s := &session{IOStreams: streams, flags: genericclioptions.NewConfigFlags(false).WithWarningPrinter(streams)}
	root.PersistentFlags().StringVarP(&s.workspace, "workspace", "w", "",
		"Use this workspace instead of the current one: an absolute path such as :root:org:team, or a path relative to the current workspace")
	connection := pflag.NewFlagSet("connection", pflag.ContinueOnError)
	s.flags.AddFlags(connection)
	logging := flag.NewFlagSet("logging", flag.ContinueOnError)
	klog.InitFlags(logging)
	connection.AddGoFlag(logging.Lookup("v"))
	connection.Lookup("v").Shorthand = "v"
	root.PersistentFlags().AddFlagSet(connection)
	hideInHelp(root, connection)
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.CompletionOptions.DisableDefaultCmd = true // kubectl runs kubectl_complete-* programs instead
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
	})
	_ = root.RegisterFlagCompletionFunc("workspace", s.completePaths)
	_ = root.RegisterFlagCompletionFunc("context", s.completeContexts)
	return s
}

// hideInHelp removes the flags that all kubectl commands share from the help.
func hideInHelp(root *cobra.Command, flags *pflag.FlagSet) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		flags.VisitAll(func(f *pflag.Flag) { f.Hidden = true })
		help(cmd, args)
		if cmd.Runnable() {
			cmd.Println("\nThe global kubectl flags, such as --kubeconfig, --context and --as, are supported too. Run kubectl options to list them.")
		}
	})
}

// place is the location of a session together with what is needed to reach other locations from it.
type place struct {
	location.Location
	client    *workspaces.Client
	config    *clientcmdapi.Config
	access    clientcmd.ConfigAccess
	overrides kubeconfig.Overrides
}

// open reads the kubeconfig and resolves the workspace that the flags select.
func (s *session) open(ctx context.Context) (*place, error) {
	loader := s.flags.ToRawKubeConfigLoader()
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if len(raw.Clusters) == 0 && *s.flags.APIServer == "" {
		return nil, fmt.Errorf("no server configured: kubeconfig %s has no clusters; set KUBECONFIG or --kubeconfig",
			loader.ConfigAccess().GetDefaultFilename())
	}
	config, err := s.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig: %w", err)
	}
	here, err := location.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	client, err := workspaces.New(config)
	if err != nil {
		return nil, err
	}
	p := &place{Location: here, client: client, config: &raw, access: loader.ConfigAccess(),
		overrides: kubeconfig.Overrides{Context: *s.flags.Context, Cluster: *s.flags.ClusterName, AuthInfo: *s.flags.AuthInfoName}}
	if s.workspace != "" {
		p.Location, err = s.resolve(ctx, p, s.workspace)
	}
	return p, err
}

// inWorkspace is like open, and fails if the location is not a workspace.
func (s *session) inWorkspace(ctx context.Context) (*place, error) {
	p, err := s.open(ctx)
	if err == nil && !p.IsWorkspace() {
		err = fmt.Errorf("%s is %w (the URL has no /clusters/ path); switch to a workspace, for example with kubectl ws :root, "+
			"or set --workspace", p.URL(), location.ErrNoWorkspace)
	}
	return p, err
}

// restConfig returns the configuration for client-go clients of p.
func (s *session) restConfig(p *place) (*rest.Config, error) {
	config, err := s.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.Host = p.URL()
	return config, nil
}

// resolve returns the location of a workspace name relative to p.
func (s *session) resolve(ctx context.Context, p *place, name string) (location.Location, error) {
	from, name := p.Location, unexpanded(name)
	first, rest, below := strings.Cut(strings.ReplaceAll(name, "/", ":"), ":")
	if first == "~" {
		home, err := p.client.Home(ctx, from)
		if err != nil || !below || rest == "" {
			return home, err
		}
		return home.Resolve(rest)
	}
	if !location.IsAbsolute(name) {
		if first == location.Root && below {
			_, _ = fmt.Fprintf(s.ErrOut, "Note: %q is relative to the current workspace; the absolute path is \":%s\".\n", name, name)
		}
		canonical, err := p.client.Canonical(ctx, from)
		if err != nil && !apierrors.IsForbidden(err) {
			return from, err
		}
		from = canonical
	}
	return from.Resolve(name)
}

// unexpanded reverts the shell's expansion of ~ to the home directory. Below the home directory /root, a name is an absolute path of
// workspaces instead.
func unexpanded(name string) string {
	home, err := os.UserHomeDir()
	if err != nil || !strings.HasPrefix(home, "/") || home == "/" {
		return name
	}
	below, ok := strings.CutPrefix(name, home)
	switch {
	case ok && below == "":
		return "~"
	case ok && below[0] == '/' && home != "/"+location.Root:
		return "~" + below
	}
	return name
}

// atMost refuses more than n arguments. The error says that the command accepts what.
func atMost(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return fmt.Errorf("%s accepts %s, got %q; see %s --help", cmd.CommandPath(), what, args, cmd.CommandPath())
		}
		return nil
	}
}
