// Package command is what people type: the commands of the plugins of kubectl, in terms of the packages beside it.
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

	"github.com/kcplane/kcp/cli/kubeconfig"
	"github.com/kcplane/kcp/cli/location"
	"github.com/kcplane/kcp/cli/workspaces"
)

// session is one run of a plugin: its flags and streams.
type session struct {
	genericiooptions.IOStreams
	flags     *genericclioptions.ConfigFlags
	workspace string
}

// newSession gives a plugin the flags that all of its commands have.
func newSession(root *cobra.Command, streams genericiooptions.IOStreams) *session {
	s := &session{IOStreams: streams, flags: genericclioptions.NewConfigFlags(false).WithWarningPrinter(streams)}
	root.PersistentFlags().StringVarP(&s.workspace, "workspace", "w", "",
		"Act as if this were the current workspace: a path like :root:org:team, or one relative to the current workspace")
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
	root.CompletionOptions.DisableDefaultCmd = true // kubectl has its own way
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
	})
	_ = root.RegisterFlagCompletionFunc("workspace", s.completePaths)
	_ = root.RegisterFlagCompletionFunc("context", s.completeContexts)
	return s
}

// hideInHelp leaves the flags that every command of kubectl has to the help of kubectl itself.
func hideInHelp(root *cobra.Command, flags *pflag.FlagSet) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		flags.VisitAll(func(f *pflag.Flag) { f.Hidden = true })
		help(cmd, args)
		if cmd.Runnable() {
			cmd.Println("\nThe flags of every kubectl command, such as --kubeconfig, --context and --as, work too: see kubectl options.")
		}
	})
}

// place is where a session is, and how it gets anywhere from there.
type place struct {
	location.Location
	client    *workspaces.Client
	config    *clientcmdapi.Config
	access    clientcmd.ConfigAccess
	overrides kubeconfig.Overrides
}

// open reads the kubeconfig and goes to the workspace that the flags name.
func (s *session) open(ctx context.Context) (*place, error) {
	loader := s.flags.ToRawKubeConfigLoader()
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be read: %w", err)
	}
	if len(raw.Clusters) == 0 && *s.flags.APIServer == "" {
		return nil, fmt.Errorf("there is no kubeconfig that names a server: %s has none; set KUBECONFIG or --kubeconfig",
			loader.ConfigAccess().GetDefaultFilename())
	}
	config, err := s.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be used: %w", err)
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

// inWorkspace is open for commands that make sense in a workspace only.
func (s *session) inWorkspace(ctx context.Context) (*place, error) {
	p, err := s.open(ctx)
	if err == nil && !p.IsWorkspace() {
		err = fmt.Errorf("%s is %w (it is not below /clusters/); go to one, for example with kubectl ws :root, "+
			"or name one with --workspace", p.URL(), location.ErrNoWorkspace)
	}
	return p, err
}

// restConfig is how clients that are not ours reach p.
func (s *session) restConfig(p *place) (*rest.Config, error) {
	config, err := s.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.Host = p.URL()
	return config, nil
}

// resolve returns where a name leads from p.
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
			_, _ = fmt.Fprintf(s.ErrOut, "Note: %q is looked up below the current workspace; the path from the root is \":%s\".\n", name, name)
		}
		canonical, err := p.client.Canonical(ctx, from)
		if err != nil && !apierrors.IsForbidden(err) {
			return from, err
		}
		from = canonical
	}
	return from.Resolve(name)
}

// unexpanded puts ~ back where the shell has replaced it by the home directory. With the home directory /root, what is below it is a
// path of workspaces.
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

// noMoreThan refuses arguments beyond n, in words.
func noMoreThan(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return fmt.Errorf("%s takes %s, not %q; see %s --help", cmd.CommandPath(), what, args, cmd.CommandPath())
		}
		return nil
	}
}
