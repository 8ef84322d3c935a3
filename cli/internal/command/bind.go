package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/cli/internal/apis"
	"github.com/kcplane/kcp/cli/internal/location"
)

// Values of --dry-run.
const (
	forReal   = "none"
	askServer = "server"
	onlyPrint = "client"
)

// binding describes an APIExport to bind.
type binding struct {
	path, export, name string
	decisions          apis.Decisions
	acceptAll          bool
	rejectAll          bool
	timeout            time.Duration
	dryRun             format
	output             format
}

// bind returns the command that groups everything that can be bound.
func (s *session) bind(invocation string) *cobra.Command {
	return group("bind", "Bind APIs of other workspaces", "Bind APIs of other workspaces.",
		examples(invocation, `
			# Bind the APIExport widgets of the workspace root:org
			%[1]s apiexport root:org:widgets`),
		s.bindExport(invocation+" apiexport"))
}

func (s *session) bindExport(invocation string) *cobra.Command {
	b := binding{dryRun: forReal}
	cmd := &cobra.Command{
		Use:     "apiexport PATH:NAME",
		Aliases: []string{"apiexports"},
		Short:   "Bind an APIExport of another workspace",
		Long: `Bind an APIExport to make its APIs available in the current workspace, and wait until they are. PATH is the absolute path of the
workspace of the APIExport; without PATH, the APIExport is in the current workspace. You need the permission to "bind" the APIExport.

An APIExport can claim access to other resources in the workspaces that bind it. Accept or reject each permission claim with a flag, or
later with kubectl kcp claims. The provider has no access until you accept a claim. RESOURCE.GROUP is for example configmaps.core or
roles.rbac.authorization.k8s.io.`,
		Example: examples(invocation, `
			# Bind the APIExport widgets of the workspace root:org
			%[1]s root:org:widgets

			# Choose the name of the APIBinding, and accept one permission claim
			%[1]s root:org:widgets --name our-widgets --accept-permission-claim configmaps.core

			# Print the APIBinding without creating it
			%[1]s root:org:widgets --accept-all-permission-claims --dry-run -o yaml`),
		Args: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) != 1 {
				return fmt.Errorf("%s requires one APIExport as PATH:NAME; see %s --help", cmd.CommandPath(), cmd.CommandPath())
			}
			b.path, b.export, err = apis.ParseExport(args[0])
			return err
		},
		ValidArgsFunction: s.completeExports,
		RunE:              func(cmd *cobra.Command, _ []string) error { return s.bindTo(cmd.Context(), b) },
	}
	flags := cmd.Flags()
	flags.StringVar(&b.name, "name", "", "Name of the APIBinding (default: name of the APIExport)")
	flags.StringArrayVar(&b.decisions.Accepted, "accept-permission-claim", nil,
		"Accept the permission claim on RESOURCE.GROUP; can be repeated")
	flags.StringArrayVar(&b.decisions.Rejected, "reject-permission-claim", nil,
		"Reject the permission claim on RESOURCE.GROUP; can be repeated")
	flags.BoolVar(&b.acceptAll, "accept-all-permission-claims", false,
		"Accept all permission claims except those in --reject-permission-claim")
	flags.BoolVar(&b.rejectAll, "reject-all-permission-claims", false,
		"Reject all permission claims except those in --accept-permission-claim")
	flags.DurationVar(&b.timeout, "timeout", 30*time.Second, "Time to wait until the APIExport is bound")
	b.output.addChoice(cmd, []string{string(asName), string(asJSON), string(asYAML)})
	dryRuns := []string{forReal, onlyPrint, askServer}
	flags.Var(choice{&b.dryRun, dryRuns}, "dry-run", "client prints the APIBinding without sending it; server sends it without storing it")
	flags.Lookup("dry-run").NoOptDefVal = onlyPrint
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions(dryRuns, cobra.ShellCompDirectiveNoFileComp))
	for _, flag := range []string{"accept-permission-claim", "reject-permission-claim"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, s.completeExportedClaims)
	}
	cmd.MarkFlagsMutuallyExclusive("accept-all-permission-claims", "reject-all-permission-claims")
	return cmd
}

// at returns the workspace of the export, relative to the workspace that binds it.
func (b binding) at(l location.Location) location.Location {
	if b.path == "" {
		return l
	}
	return l.At(b.path)
}

// hint extends a Forbidden error if the path of the export may be relative by mistake: unlike in kubectl ws, it is always absolute.
func (b binding) hint(l location.Location, err error) error {
	if b.at(l).IsCanonical() || !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%w; the path of an APIExport is always absolute, did you mean %s:%s:%s?",
		err, location.Root, b.path, b.export)
}

func (s *session) bindTo(ctx context.Context, b binding) error {
	if b.name == "" {
		b.name = b.export
	}
	switch {
	case b.acceptAll:
		b.decisions.Others = apis.Accepted
	case b.rejectAll:
		b.decisions.Others = apis.Rejected
	}
	p, err := s.inWorkspace(ctx)
	if err != nil {
		return err
	}
	client := apis.New(p.client)
	wanted := apis.NewBinding(b.name, b.path, b.export)
	applied, err := b.applyDecisions(ctx, client, p.Location, wanted)
	if err != nil {
		return err
	}
	messages := s.Out
	if b.output != "" {
		messages = s.ErrOut
	}
	made := wanted
	if b.dryRun != onlyPrint {
		if made, err = client.Create(ctx, p.Location, wanted, b.dryRun == askServer); err != nil {
			return b.hint(p.Location, err)
		}
	}
	if b.dryRun != forReal {
		return s.printBinding(b, made, messages, fmt.Sprintf("APIBinding %q created (%s dry run).\n", b.name, b.dryRun))
	}
	if _, err := fmt.Fprintf(messages, "APIBinding %q created. Waiting for it to be bound...\n", b.name); err != nil {
		return err
	}
	if made, err = s.waitBound(ctx, p, client, b); err != nil {
		return err
	}
	if !applied {
		made, err = answerLater(ctx, client, p.Location, b)
	}
	if err == nil {
		err = s.printBinding(b, made, messages, fmt.Sprintf("APIBinding %q is bound to %s.\n", b.name, apis.Export(made)))
	}
	s.warnOfClaims(made)
	return err
}

// waitBound returns the binding once its APIs are served.
func (s *session) waitBound(ctx context.Context, p *place, client apis.Client, b binding) (*apisv1alpha2.APIBinding, error) {
	config, err := s.restConfig(p)
	if err != nil {
		return nil, err
	}
	progress := newProgress(s.ErrOut)
	defer progress.end()
	begin := time.Now()
	made, err := client.WaitBound(ctx, p.Location, b.name, b.timeout, func(state *apisv1alpha2.APIBinding) {
		progress.show(fmt.Sprintf("APIBinding %q: %s", state.Name, apis.Describe(state)))
	})
	if err != nil {
		return nil, err
	}
	return made, apis.WaitServed(ctx, config, made, b.timeout-time.Since(begin))
}

// applyDecisions accepts or rejects claims in a binding before it is created, if the export is readable. The permission to bind an export
// does not include the permission to read it.
func (b binding) applyDecisions(ctx context.Context, client apis.Client, l location.Location,
	wanted *apisv1alpha2.APIBinding) (bool, error) {
	if !b.decisions.Any() {
		return true, nil
	}
	export, err := client.Export(ctx, b.at(l), b.export)
	switch {
	case err == nil:
		return true, b.decisions.Apply(wanted, export.Spec.PermissionClaims)
	case b.dryRun != forReal:
		return false, fmt.Errorf("--dry-run with permission claims requires reading the APIExport: %w", err)
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		return false, nil // the status of the binding has the claims later
	}
	return false, err
}

// answerLater accepts or rejects claims in a bound binding, whose status has the claims.
func answerLater(ctx context.Context, client apis.Client, l location.Location, b binding) (changed *apisv1alpha2.APIBinding, err error) {
	err = client.Change(ctx, l, b.name, func(live *apisv1alpha2.APIBinding) (bool, error) {
		changed = live
		return true, b.decisions.Apply(live, live.Status.ExportPermissionClaims)
	})
	if err != nil {
		err = errors.Join(fmt.Errorf("APIBinding %q is bound, but accepting or rejecting its permission claims failed", b.name), err)
	}
	return changed, err
}

// printBinding prints the message, and the binding in the requested format.
func (s *session) printBinding(b binding, made *apisv1alpha2.APIBinding, messages io.Writer, sentence string) error {
	if _, err := io.WriteString(messages, sentence); err != nil {
		return err
	}
	switch b.output {
	case "":
		return nil
	case asName:
		_, err := fmt.Fprintf(s.Out, "apibinding.%s/%s\n", apisv1alpha2.SchemeGroupVersion.Group, made.Name)
		return err
	default:
		made.SetGroupVersionKind(apisv1alpha2.SchemeGroupVersion.WithKind("APIBinding"))
		return encode(s.Out, b.output, made)
	}
}

// warnOfClaims warns about open and outdated permission claims.
func (s *session) warnOfClaims(binding *apisv1alpha2.APIBinding) {
	if binding == nil {
		return
	}
	warnings := apis.Warnings(binding)
	for _, warning := range warnings {
		_, _ = fmt.Fprintf(s.ErrOut, "Warning: %s.\n", warning)
	}
	if len(warnings) > 0 {
		_, _ = fmt.Fprintf(s.ErrOut,
			"Run kubectl kcp claims get apibinding %s to see them, and kubectl kcp claims accept, reject or update to change them.\n", binding.Name)
	}
}
