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
	"github.com/kcplane/kcp/cli/kubeconfig"
	"github.com/kcplane/kcp/cli/location"
	"github.com/kcplane/kcp/cli/workspaces"
)

// patience is how long a new workspace may take to become ready.
const patience = time.Minute

// creation is a workspace to be made, and what follows.
type creation struct {
	name, typeName, selector, context string
	enter, ignoreExisting             bool
	output                            format
	patience                          time.Duration
}

// creates makes cmd create a workspace.
func (s *session) creates(cmd *cobra.Command, invocation string) {
	c := creation{patience: patience}
	cmd.Short = "Create a workspace"
	cmd.Long = "Create a workspace below the current one, and wait until it is ready to use."
	cmd.Example = examples(invocation, `
		# Create a workspace and go there
		%[1]s team-a --enter

		# Create one of a type, below another workspace than the current one
		%[1]s team-a --type root:team --workspace :root:org

		# In a script: it may exist already, and its path is wanted
		%[1]s team-a --ignore-existing -o name`)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes the name of the new workspace and nothing else; see %s --help", cmd.CommandPath(), cmd.CommandPath())
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
		"Type of the workspace: a name, which is looked for here and above, or path:name; by default what the type of the parent says")
	flags.BoolVar(&c.enter, "enter", false, "Go to the workspace when it is ready")
	flags.BoolVar(&c.ignoreExisting, "ignore-existing", false, "Do not fail if the workspace exists and is of the type")
	flags.StringVar(&c.selector, "location-selector", "", "Labels of the shards that may host the workspace, for example region=eu")
	flags.StringVar(&c.context, "create-context", "", "Make a context of this name for the workspace")
	c.output.addTo(cmd)
	_ = cmd.RegisterFlagCompletionFunc("type", s.completeTypes)
}

// workspace returns the object to create.
func (c creation) workspace() (*tenancyv1alpha1.Workspace, error) {
	if i := strings.LastIndexAny(c.name, ":/"); i >= 0 {
		return nil, fmt.Errorf("%q is a path, and a workspace is created by its name: give %q, and --workspace %q for where it is to be",
			c.name, c.name[i+1:], c.name[:max(i, 1)])
	}
	if !location.ValidPath(c.name) || len(c.name) > 63 {
		return nil, fmt.Errorf("%q cannot be the name of a workspace: want 1 to 63 lower case letters, digits and dashes, with a letter or digit first and last", c.name)
	}
	ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: c.name}}
	ws.SetGroupVersionKind(tenancyv1alpha1.SchemeGroupVersion.WithKind("Workspace"))
	if c.typeName != "" {
		path, name := "", c.typeName
		if i := strings.LastIndex(c.typeName, ":"); i >= 0 {
			path, name = strings.TrimPrefix(c.typeName[:i], ":"), c.typeName[i+1:]
		}
		if c.ignoreExisting && path == "" {
			return nil, fmt.Errorf("--ignore-existing needs to know which type %q is: give its path too, for example root:%s, or no type",
				c.typeName, c.typeName)
		}
		ws.Spec.Type = &tenancyv1alpha1.WorkspaceTypeReference{Name: name, Path: path}
	}
	if c.selector != "" {
		selector, err := metav1.ParseToLabelSelector(c.selector)
		if err != nil {
			return nil, fmt.Errorf("--location-selector %q is no selector of labels: %w", c.selector, err)
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
		p.Location = canonical // else it stays under its name, where the workspace can be made as well
	}
	if c.context != "" && p.config.Contexts[c.context] != nil {
		return fmt.Errorf("the kubeconfig already has a context %q", c.context)
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
	if _, err := fmt.Fprintf(messages, "Workspace %q%s is ready to use.\n", ws.Name, kind(ws)); err != nil {
		return err
	}
	if c.output != "" {
		if err := printWorkspace(s.Out, c.output, ws); err != nil {
			return err
		}
	}
	return s.follow(ctx, p, c, messages)
}

// make creates the workspace, or finds the one that exists already, if that will do.
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
	case apierrors.IsAlreadyExists(err) && c.ignoreExisting: // since it was looked for
		return p.existing(ctx, c, wanted, messages)
	case apierrors.IsAlreadyExists(err):
		return nil, fmt.Errorf("workspace %q already exists in %s; --ignore-existing accepts that", c.name, p)
	case err != nil:
		return nil, p.client.ExplainCreate(ctx, p.Location, c.name, err)
	}
	_, err = fmt.Fprintf(messages, "Workspace %q%s created. Waiting for it to be ready...\n", made.Name, kind(made))
	return made, err
}

// existing returns the workspace that exists, if it is of the type that is wanted.
func (p *place) existing(ctx context.Context, c creation, wanted *tenancyv1alpha1.Workspace, messages io.Writer,
) (*tenancyv1alpha1.Workspace, error) {
	existing, err := p.client.Get(ctx, p.Location, c.name)
	if err != nil {
		return nil, err
	}
	if want, is := wanted.Spec.Type, existing.Spec.Type; want != nil && (is == nil || *want != *is) {
		return nil, fmt.Errorf("workspace %q already exists in %s%s, and not of the type %s", c.name, p, kind(existing), want)
	}
	_, err = fmt.Fprintf(messages, "Workspace %q%s already exists.\n", existing.Name, kind(existing))
	return existing, err
}

// follow does what is to be done with the workspace once it is ready.
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
		return errors.Join(fmt.Errorf("workspace %q is ready, but cannot be entered", child), err)
	}
	return nil
}

// kind is the type of a workspace in brackets, if it has one.
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
	}
	ws.SetGroupVersionKind(tenancyv1alpha1.SchemeGroupVersion.WithKind("Workspace"))
	ws.ManagedFields = nil // as kubectl does
	return encode(w, f, ws)
}
