package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/cli/internal/kubeconfig"
	"github.com/kcplane/kcp/cli/internal/location"
	"github.com/kcplane/kcp/cli/internal/workspaces"
)

// patience is the timeout for a new workspace to become ready.
const patience = time.Minute

// creation describes a workspace to create, and what to do once it is ready.
type creation struct {
	name, typeName, selector, context string
	enter, ignoreExisting             bool
	output                            format
	patience                          time.Duration
}

// creates makes cmd create workspaces.
func (s *session) creates(cmd *cobra.Command, invocation string) {
	c := creation{patience: patience}
	cmd.Short = "Create a workspace"
	cmd.Long = "Create a workspace below the current one, and wait until it is ready."
	cmd.Example = examples(invocation, `
		# Create a workspace and switch to it
		%[1]s team-a --enter

		# Create a workspace of a type, below another workspace
		%[1]s team-a --type root:team --workspace :root:org

		# Create a workspace unless it exists, and print its name, for scripts
		%[1]s team-a --ignore-existing -o name`)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s requires one argument, the name of the new workspace; see %s --help", cmd.CommandPath(), cmd.CommandPath())
		}
		return nil
	}
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.name = args[0]
		return s.create(cmd.Context(), c)
	}
	flags := cmd.Flags()
	flags.StringVar(&c.typeName, "type", "",
		"Type of the workspace: path:name, or a name looked up in the current workspace and its ancestors (default: set by the type of the "+
			"parent)")
	flags.BoolVar(&c.enter, "enter", false, "Switch to the workspace when it is ready")
	flags.BoolVar(&c.ignoreExisting, "ignore-existing", false, "Succeed if the workspace already exists with the same type")
	flags.StringVar(&c.selector, "location-selector", "", "Label selector for the shards that may host the workspace, for example region=eu")
	flags.StringVar(&c.context, "create-context", "", "Create a kubeconfig context with this name for the workspace")
	c.output.addTo(cmd)
	_ = cmd.RegisterFlagCompletionFunc("type", s.completeTypes)
}

// workspace returns the object to create.
func (c creation) workspace() (*tenancyv1alpha1.Workspace, error) {
	if i := strings.LastIndexAny(c.name, ":/"); i >= 0 {
		return nil, fmt.Errorf("%q is a path, expected a name: pass the name %q, and the parent workspace as --workspace %q",
			c.name, c.name[i+1:], c.name[:max(i, 1)])
	}
	if !location.ValidPath(c.name) || len(c.name) > 63 {
		return nil, fmt.Errorf("invalid workspace name %q: must be 1 to 63 lower case letters, digits or dashes, and start and end with a "+
			"letter or digit", c.name)
	}
	ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: c.name}}
	ws.SetGroupVersionKind(tenancyv1alpha1.SchemeGroupVersion.WithKind("Workspace"))
	if c.typeName != "" {
		path, name := "", c.typeName
		if i := strings.LastIndex(c.typeName, ":"); i >= 0 {
			path, name = strings.TrimPrefix(c.typeName[:i], ":"), c.typeName[i+1:]
		}
		if c.ignoreExisting && path == "" {
			return nil, fmt.Errorf("--ignore-existing requires the path of the type %q, for example --type root:%s",
				c.typeName, c.typeName)
		}
		ws.Spec.Type = &tenancyv1alpha1.WorkspaceTypeReference{Name: name, Path: path}
	}
	if c.selector != "" {
		selector, err := metav1.ParseToLabelSelector(c.selector)
		if err != nil {
			return nil, fmt.Errorf("invalid --location-selector %q: %w", c.selector, err)
		}
		ws.Spec.Location = &tenancyv1alpha1.WorkspaceLocation{Selector: selector}
	}
	return ws, nil
}

func (s *session) create(ctx context.Context, c creation) error {
	wanted, err := c.workspace()
	if err != nil {
		return err
	}
	p, err := s.inWorkspace(ctx)
	if err != nil {
		return err
	}
	if canonical, err := p.client.Canonical(ctx, p.Location); err == nil {
		p.Location = canonical // otherwise the name of the logical cluster is used, which works as well
	}
	if c.context != "" && p.config.Contexts[c.context] != nil {
		return fmt.Errorf("kubeconfig already has a context %q", c.context)
	}
	messages := s.Out
	if c.output != "" {
		messages = s.ErrOut
	}
	ws, err := p.make(ctx, c, wanted, messages)
	if err != nil {
		return err
	}
	progress := newProgress(s.ErrOut)
	ws, err = p.client.WaitReady(ctx, p.Location, ws, c.patience, func(state *tenancyv1alpha1.Workspace) {
		progress.show(fmt.Sprintf("Workspace %q: %s", state.Name, workspaces.Describe(state)))
	})
	progress.end()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(messages, "Workspace %q%s is ready.\n", ws.Name, kind(ws)); err != nil {
		return err
	}
	if c.output != "" {
		if err := printWorkspace(s.Out, c.output, ws); err != nil {
			return err
		}
	}
	return s.follow(ctx, p, c, messages)
}

// make creates the workspace. With --ignore-existing it returns an existing workspace of the same type.
func (p *place) make(ctx context.Context, c creation, wanted *tenancyv1alpha1.Workspace, messages io.Writer,
) (*tenancyv1alpha1.Workspace, error) {
	if c.ignoreExisting {
		existing, err := p.existing(ctx, c, wanted, messages)
		if !apierrors.IsNotFound(err) {
			return existing, err
		}
	}
	made, err := p.client.Create(ctx, p.Location, wanted)
	switch {
	case apierrors.IsAlreadyExists(err) && c.ignoreExisting: // created since the check
		return p.existing(ctx, c, wanted, messages)
	case apierrors.IsAlreadyExists(err):
		return nil, fmt.Errorf("workspace %q already exists in %s; set --ignore-existing to use it", c.name, p)
	case err != nil:
		return nil, p.client.ExplainCreate(ctx, p.Location, c.name, err)
	}
	_, err = fmt.Fprintf(messages, "Workspace %q%s created. Waiting for it to be ready...\n", made.Name, kind(made))
	return made, err
}

// existing returns the existing workspace, or an error if it has another type than requested.
func (p *place) existing(ctx context.Context, c creation, wanted *tenancyv1alpha1.Workspace, messages io.Writer,
) (*tenancyv1alpha1.Workspace, error) {
	existing, err := p.client.Get(ctx, p.Location, c.name)
	if err != nil {
		return nil, err
	}
	if want, is := wanted.Spec.Type, existing.Spec.Type; want != nil && (is == nil || *want != *is) {
		return nil, fmt.Errorf("workspace %q already exists in %s%s, but is not of type %s", c.name, p, kind(existing), want)
	}
	_, err = fmt.Fprintf(messages, "Workspace %q%s already exists.\n", existing.Name, kind(existing))
	return existing, err
}

// follow creates a context for the ready workspace and switches to it, if requested.
func (s *session) follow(ctx context.Context, p *place, c creation, messages io.Writer) error {
	child := p.Child(c.name)
	if c.context != "" {
		changed, err := kubeconfig.Add(p.config, p.overrides, c.context, child.URL(), false, false)
		if err != nil {
			return err
		}
		if err := kubeconfig.Save(p.access, changed); err != nil {
			return err
		}
		p.config = changed
		if _, err := fmt.Fprintf(messages, "Created context %q.\n", c.context); err != nil {
			return err
		}
	}
	if !c.enter {
		return nil
	}
	entering := *s
	entering.Out = messages
	if err := entering.enter(ctx, p, child, ""); err != nil {
		return errors.Join(fmt.Errorf("workspace %q is ready, but switching to it failed", child), err)
	}
	return nil
}

// kind returns the type of a workspace in parentheses, if it has one.
func kind(ws *tenancyv1alpha1.Workspace) string {
	if ws.Spec.Type == nil {
		return ""
	}
	return " (type " + ws.Spec.Type.String() + ")"
}

func printWorkspace(w io.Writer, f format, ws *tenancyv1alpha1.Workspace) error {
	switch f {
	case asName:
		_, err := fmt.Fprintf(w, "workspace.%s/%s\n", tenancyv1alpha1.SchemeGroupVersion.Group, ws.Name)
		return err
	case asWide:
		typeName := ""
		if ws.Spec.Type != nil {
			typeName = ws.Spec.Type.String()
		}
		return table(w, []string{"NAME", "TYPE", "PHASE", "CLUSTER", "URL"},
			[]string{ws.Name, typeName, string(ws.Status.Phase), ws.Spec.Cluster, ws.Spec.URL})
	default:
		ws.SetGroupVersionKind(tenancyv1alpha1.SchemeGroupVersion.WithKind("Workspace"))
		ws.ManagedFields = nil // as kubectl does
		return encode(w, f, ws)
	}
}
