package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/cli/internal/apis"
	"github.com/kcplane/kcp/cli/internal/location"
	"github.com/kcplane/kcp/cli/internal/quickstart"
	"github.com/kcplane/kcp/cli/internal/workspaces"
)

// quickStart describes what to create or delete.
type quickStart struct {
	scenario                format
	prefix                  string
	cleanup, enter, samples bool
	dryRun                  bool
	timeout                 time.Duration
	depth, count            int
	seed                    uint64
}

// step is one step of the quick start. It returns what was done.
type step struct {
	what string
	do   func(ctx context.Context) (string, error)
}

func (s *session) quickstart(invocation string) *cobra.Command {
	q := quickStart{scenario: quickstart.Provider}
	cmd := &cobra.Command{
		Use:   "quickstart",
		Short: "Create sample workspaces to try kcp",
		Long: `Create sample workspaces below the current one, and print each step. The command does not change what already exists, so you can
repeat it, also after an interruption.

The scenario api-provider creates a workspace that exports an API and a workspace that binds it. The scenario workspaces creates a
tree of workspaces.`,
		Example: examples(invocation, `
			# Create a workspace that exports an API and one that binds it, and switch to the second
			%[1]s --with-samples --enter

			# Print the steps without running them
			%[1]s --dry-run

			# Create a tree of 100 workspaces, at most 5 levels deep
			%[1]s --scenario workspaces --tree-count 100 --tree-depth 5

			# Delete what the first command created
			%[1]s --cleanup`),
		Args:              atMost(0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return s.start(cmd.Context(), q) },
	}
	flags := cmd.Flags()
	scenarios := []string{quickstart.Provider, quickstart.Workspaces}
	flags.Var(choice{&q.scenario, scenarios}, "scenario", "Scenario to create")
	flags.StringVar(&q.prefix, "name-prefix", "quickstart", "Prefix of the workspace names")
	flags.BoolVar(&q.cleanup, "cleanup", false, "Delete the workspaces of the scenario with everything in them")
	flags.BoolVar(&q.enter, "enter", false, "Switch to the workspace that binds the API, or to the tree")
	flags.BoolVar(&q.samples, "with-samples", false, "Create sample objects too")
	flags.BoolVar(&q.dryRun, "dry-run", false, "Print the steps without running them")
	flags.DurationVar(&q.timeout, "timeout", 10*time.Minute, "Time limit for all steps together")
	flags.IntVar(&q.depth, "tree-depth", 3, "Depth of the tree, for --scenario workspaces")
	flags.IntVar(&q.count, "tree-count", 50, "Number of workspaces in the tree, for --scenario workspaces")
	flags.Uint64Var(&q.seed, "tree-seed", 1, "Seed of the tree, for --scenario workspaces; the same seed creates the same tree")
	cmd.MarkFlagsMutuallyExclusive("cleanup", "enter")
	cmd.MarkFlagsMutuallyExclusive("cleanup", "with-samples")
	_ = cmd.RegisterFlagCompletionFunc("scenario", cobra.FixedCompletions(scenarios, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (q quickStart) validate() error {
	if q.depth < 1 || q.count < 0 {
		return fmt.Errorf("--tree-depth must be 1 or more and --tree-count 0 or more, got %d and %d", q.depth, q.count)
	}
	if name := q.prefix + "-provider"; !location.ValidPath(name) || strings.Contains(name, ":") || len(name) > 63 {
		return fmt.Errorf("invalid --name-prefix %q: must be lower case letters, digits or dashes, and start with a letter or digit", q.prefix)
	}
	return nil
}

func (s *session) start(ctx context.Context, q quickStart) error {
	if err := q.validate(); err != nil {
		return err
	}
	p, err := s.inWorkspace(ctx)
	if err != nil {
		return err
	}
	if canonical, err := p.client.Canonical(ctx, p.Location); err == nil {
		p.Location = canonical
	}
	limited, cancel := context.WithTimeoutCause(ctx, q.timeout,
		fmt.Errorf("not finished after --timeout=%s; repeat the command to continue", q.timeout))
	defer cancel()
	made := map[string]location.Location{}
	for _, name := range []string{"provider", "consumer", "tree"} {
		made[name] = p.Child(q.prefix + "-" + name)
	}
	steps, end, err := s.providerSteps(p, q, made["provider"], made["consumer"])
	if q.scenario == quickstart.Workspaces {
		steps, end = s.treeSteps(p, q, made["tree"])
	}
	if err != nil {
		return err
	}
	if q.cleanup {
		steps = s.cleanupSteps(p, q)
	}
	for _, step := range steps {
		done := "not done (dry run)"
		if !q.dryRun {
			if done, err = step.do(limited); err != nil {
				if cause := context.Cause(limited); cause != nil && ctx.Err() == nil {
					err = errors.Join(cause, err)
				}
				return fmt.Errorf("%s: %w", step.what, err)
			}
		}
		if _, err := fmt.Fprintf(s.Out, "%s: %s\n", step.what, done); err != nil {
			return err
		}
	}
	if q.cleanup || q.dryRun {
		return nil
	}
	return s.nextSteps(ctx, p, q, end)
}

// nextSteps switches to the workspace if requested, and prints the next commands to run.
func (s *session) nextSteps(ctx context.Context, p *place, q quickStart, end location.Location) error {
	var commands []string
	if q.enter {
		if err := s.enter(ctx, p, end, ""); err != nil {
			return err
		}
	} else {
		commands = append(commands, fmt.Sprintf("kubectl ws :%s", end))
	}
	if q.scenario == quickstart.Provider {
		commands = append(commands, "kubectl explain cowboys.spec", "kubectl get cowboys")
	} else {
		commands = append(commands, "kubectl ws tree")
	}
	_, err := fmt.Fprintf(s.Out, "\nNext steps:\n  %s\n", strings.Join(commands, "\n  "))
	return err
}

func (s *session) providerSteps(p *place, q quickStart, provider, consumer location.Location) ([]step, location.Location, error) {
	objects, err := quickstart.ProviderObjects()
	if err != nil {
		return nil, consumer, err
	}
	steps := []step{s.workspaceStep(p, p.Location, q.prefix+"-provider")}
	for _, object := range objects {
		steps = append(steps, s.objectStep(p, provider, object))
	}
	steps = append(steps, s.workspaceStep(p, p.Location, q.prefix+"-consumer"), step{
		what: fmt.Sprintf("APIBinding %s in %s", quickstart.Export, consumer),
		do: func(ctx context.Context) (string, error) {
			return s.ensureBinding(ctx, p, provider, consumer, q.timeout)
		},
	})
	if q.samples {
		samples, err := quickstart.Samples()
		if err != nil {
			return nil, consumer, err
		}
		for _, object := range samples {
			steps = append(steps, s.objectStep(p, consumer, object))
		}
	}
	return steps, consumer, nil
}

func (s *session) treeSteps(p *place, q quickStart, top location.Location) ([]step, location.Location) {
	steps := []step{s.workspaceStep(p, p.Location, q.prefix+"-tree")}
	for _, path := range quickstart.Tree(q.count, q.depth, q.seed) {
		parent, name := top, path[len(path)-1]
		for _, above := range path[:len(path)-1] {
			parent = parent.Child(above)
		}
		steps = append(steps, s.workspaceStep(p, parent, name))
		if q.samples {
			steps = append(steps, s.objectStep(p, parent.Child(name), quickstart.Sample()))
		}
	}
	return steps, top
}

// cleanupSteps delete the top-level workspaces of the quick start with everything in them.
func (s *session) cleanupSteps(p *place, q quickStart) []step {
	names := []string{q.prefix + "-consumer", q.prefix + "-provider"}
	if q.scenario == quickstart.Workspaces {
		names = []string{q.prefix + "-tree"}
	}
	var steps []step
	for _, name := range names {
		steps = append(steps, step{"Deletion of workspace " + p.Child(name).String(),
			func(ctx context.Context) (string, error) { return deleteOwn(ctx, p, name) }})
	}
	return steps
}

// own returns a workspace that a quick start created, or the server's error if it does not exist.
func own(ctx context.Context, p *place, parent location.Location, name string) (*tenancyv1alpha1.Workspace, error) {
	ws, err := p.client.Get(ctx, parent, name)
	if err == nil && ws.Labels[quickstart.Label] != quickstart.LabelValue {
		err = errors.New("it exists and was not created by kubectl kcp quickstart; choose other names with --name-prefix")
	}
	return ws, err
}

func (s *session) workspaceStep(p *place, parent location.Location, name string) step {
	return step{"Workspace " + parent.Child(name).String(), func(ctx context.Context) (string, error) {
		done := "exists"
		ws, err := own(ctx, p, parent, name)
		if apierrors.IsNotFound(err) {
			wanted := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name,
				Labels: map[string]string{quickstart.Label: quickstart.LabelValue}}}
			wanted.SetGroupVersionKind(tenancyv1alpha1.SchemeGroupVersion.WithKind("Workspace"))
			done = "created"
			if ws, err = p.client.Create(ctx, parent, wanted); err != nil {
				return "", p.client.ExplainCreate(ctx, parent, name, err)
			}
		}
		if err != nil {
			return "", err
		}
		progress := newProgress(s.ErrOut)
		defer progress.end()
		_, err = p.client.WaitReady(ctx, parent, ws, patience, func(state *tenancyv1alpha1.Workspace) {
			progress.show(fmt.Sprintf("Workspace %q: %s", state.Name, workspaces.Describe(state)))
		})
		return done, err
	}}
}

func (s *session) objectStep(p *place, at location.Location, object quickstart.Object) step {
	return step{fmt.Sprintf("%s %s in %s", object.GetKind(), object.GetName(), at), func(ctx context.Context) (string, error) {
		config, err := s.restConfig(&place{Location: at})
		if err != nil {
			return "", err
		}
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return "", err
		}
		_, err = client.Resource(object.Resource).Namespace(object.GetNamespace()).Create(ctx, object.Unstructured, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return "exists", nil
		}
		return "created", err
	}}
}

// ensureBinding binds the provider's export in the consumer, and waits until its API is served there.
func (s *session) ensureBinding(ctx context.Context, p *place, provider, consumer location.Location,
	timeout time.Duration) (string, error) {
	client := apis.New(p.client)
	wanted := apis.NewBinding(quickstart.Export, provider.Cluster(), quickstart.Export)
	all, err := client.Bindings(ctx, consumer)
	if err != nil {
		return "", err
	}
	done := "exists, bound"
	if i := slices.IndexFunc(all, func(b apisv1alpha2.APIBinding) bool { return b.Name == quickstart.Export }); i < 0 {
		done = "created, bound"
		if _, err := client.Create(ctx, consumer, wanted, false); err != nil {
			return "", err
		}
	} else if got := apis.Export(&all[i]); got != apis.Export(wanted) {
		return "", fmt.Errorf("it exists and binds %s instead of %s", got, apis.Export(wanted))
	}
	_, err = s.waitBound(ctx, &place{Location: consumer, client: p.client}, client, binding{name: quickstart.Export, timeout: timeout})
	return done, err
}

// deleteOwn deletes a workspace that a quick start created, and waits until it is gone.
func deleteOwn(ctx context.Context, p *place, name string) (string, error) {
	_, err := own(ctx, p, p.Location, name)
	if apierrors.IsNotFound(err) {
		return "nothing to delete", nil
	}
	if err != nil {
		return "", err
	}
	r, err := p.client.At(p.Location, tenancyv1alpha1.SchemeGroupVersion)
	if err != nil {
		return "", err
	}
	if err := r.Delete().Resource("workspaces").Name(name).Do(ctx).Error(); err != nil && !apierrors.IsNotFound(err) {
		return "", err
	}
	err = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := p.client.Get(ctx, p.Location, name)
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
	return "deleted", err
}
