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
	"github.com/kcplane/kcp/cli/apis"
	"github.com/kcplane/kcp/cli/location"
)

// How far a command that changes something goes: to the end, to the server, or not even there.
const (
	forReal   = "none"
	askServer = "server"
	onlyPrint = "client"
)

// binding is an export to be bound, and how.
type binding struct {
	path, export, name string
	answers            apis.Answers
	acceptAll          bool
	rejectAll          bool
	timeout            time.Duration
	dryRun             format
	output             format
}

// bind is the command with everything below it that can be bound.
func (s *session) bind(invocation string) *cobra.Command {
	return group("bind", "Bring APIs of other workspaces into a workspace", "Bring APIs of other workspaces into a workspace.",
		examples(invocation, `
			# Bind the export widgets of the workspace root:org
			%[1]s apiexport root:org:widgets`),
		s.bindExport(invocation+" apiexport"))
}

func (s *session) bindExport(invocation string) *cobra.Command {
	b := binding{dryRun: forReal}
	cmd := &cobra.Command{
		Use:     "apiexport PATH:NAME",
		Aliases: []string{"apiexports"},
		Short:   "Bind an APIExport of another workspace",
		Long: `Bind an APIExport, so that the current workspace has its APIs, and wait until it does. PATH is that of the workspace of the
export, from the root; a name alone is an export of the current workspace. Binding takes the right to "bind" the export.

An export may claim access to other resources of the workspaces that bind it. Each claim is accepted or rejected by a flag here, or
later with kubectl kcp claims; without an answer it has no effect. RESOURCE.GROUP is for example configmaps.core or roles.rbac.authorization.k8s.io.`,
		Example: examples(invocation, `
			# Bind the export widgets of the workspace root:org, as it is called there
			%[1]s root:org:widgets

			# Under another name, with one of its claims
			%[1]s root:org:widgets --name our-widgets --accept-permission-claim configmaps.core

			# What would be created?
			%[1]s root:org:widgets --accept-all-permission-claims --dry-run -o yaml`),
		Args: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) != 1 {
				return fmt.Errorf("%s takes one export, as PATH:NAME; see %s --help", cmd.CommandPath(), cmd.CommandPath())
			}
			b.path, b.export, err = apis.ParseExport(args[0])
			return err
		},
		ValidArgsFunction: s.completeExports,
		RunE:              func(cmd *cobra.Command, _ []string) error { return s.bindTo(cmd.Context(), b) },
	}
	flags := cmd.Flags()
	flags.StringVar(&b.name, "name", "", "Name of the APIBinding; by default that of the export")
	flags.StringArrayVar(&b.answers.Accepted, "accept-permission-claim", nil, "Accept the claim on RESOURCE.GROUP; can be repeated")
	flags.StringArrayVar(&b.answers.Rejected, "reject-permission-claim", nil, "Reject the claim on RESOURCE.GROUP; can be repeated")
	flags.BoolVar(&b.acceptAll, "accept-all-permission-claims", false, "Accept all claims but those that are rejected by name")
	flags.BoolVar(&b.rejectAll, "reject-all-permission-claims", false, "Reject all claims but those that are accepted by name")
	flags.DurationVar(&b.timeout, "timeout", 30*time.Second, "How long to wait until the export is bound")
	b.output.addChoice(cmd, []string{string(asName), string(asJSON), string(asYAML)})
	dryRuns := []string{forReal, onlyPrint, askServer}
	flags.Var(choice{&b.dryRun, dryRuns}, "dry-run", "Create nothing: client only prints the APIBinding, server asks whether it could be created")
	flags.Lookup("dry-run").NoOptDefVal = onlyPrint
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions(dryRuns, cobra.ShellCompDirectiveNoFileComp))
	for _, flag := range []string{"accept-permission-claim", "reject-permission-claim"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, s.completeExportedClaims)
	}
	cmd.MarkFlagsMutuallyExclusive("accept-all-permission-claims", "reject-all-permission-claims")
	return cmd
}

// at is the workspace of the export, seen from where it is bound.
func (b binding) at(l location.Location) location.Location {
	if b.path == "" {
		return l
	}
	return l.At(b.path)
}

// hint adds to a refusal that the path of an export is no path as kubectl ws has it, if that may be why.
func (b binding) hint(l location.Location, err error) error {
	if b.at(l).IsCanonical() || !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%w; the path of an export begins at the root, wherever you are: perhaps it is %s:%s:%s",
		err, location.Root, b.path, b.export)
}

func (s *session) bindTo(ctx context.Context, b binding) error {
	if b.name == "" {
		b.name = b.export
	}
	switch {
	case b.acceptAll:
		b.answers.Others = apis.Accepted
	case b.rejectAll:
		b.answers.Others = apis.Rejected
	}
	p, err := s.inWorkspace(ctx)
	if err != nil {
		return err
	}
	client := apis.New(p.client)
	wanted := apis.NewBinding(b.name, b.path, b.export)
	answered, err := b.answer(ctx, client, p.Location, wanted)
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
	if !answered {
		made, err = answerLater(ctx, client, p.Location, b)
	}
	if err == nil {
		err = s.printBinding(b, made, messages, fmt.Sprintf("APIBinding %q is bound to %s.\n", b.name, apis.Export(made)))
	}
	s.warnOfClaims(made)
	return err
}

// waitBound returns the binding when what it binds can be used.
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

// answer writes the answers into a binding that is still to be made, if the claims of the export can be read. Whoever may bind an
// export need not have the right to read it.
func (b binding) answer(ctx context.Context, client apis.Client, l location.Location, wanted *apisv1alpha2.APIBinding) (bool, error) {
	if !b.answers.Any() {
		return true, nil
	}
	export, err := client.Export(ctx, b.at(l), b.export)
	switch {
	case err == nil:
		return true, b.answers.Give(wanted, export.Spec.PermissionClaims)
	case b.dryRun != forReal:
		return false, fmt.Errorf("a dry run needs to read the export for its claims: %w", err)
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		return false, nil // the server tells when it is bound, or why it cannot be
	}
	return false, err
}

// answerLater writes the answers into a binding that exists, and knows the claims of its export.
func answerLater(ctx context.Context, client apis.Client, l location.Location, b binding) (changed *apisv1alpha2.APIBinding, err error) {
	err = client.Change(ctx, l, b.name, func(live *apisv1alpha2.APIBinding) (bool, error) {
		changed = live
		return true, b.answers.Give(live, live.Status.ExportPermissionClaims)
	})
	if err != nil {
		err = errors.Join(fmt.Errorf("APIBinding %q is bound, but its claims are not answered", b.name), err)
	}
	return changed, err
}

// printBinding prints what was asked for, or says it.
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
	}
	made.SetGroupVersionKind(apisv1alpha2.SchemeGroupVersion.WithKind("APIBinding"))
	return encode(s.Out, b.output, made)
}

// warnOfClaims tells where claims and answers do not match.
func (s *session) warnOfClaims(binding *apisv1alpha2.APIBinding) {
	if binding == nil {
		return
	}
	warnings := apis.Warnings(binding)
	for _, warning := range warnings {
		_, _ = fmt.Fprintf(s.ErrOut, "Warning: %s.\n", warning)
	}
	if len(warnings) > 0 {
		_, _ = fmt.Fprintf(s.ErrOut, "See kubectl kcp claims get apibinding %s; kubectl kcp claims accept, reject and update answer.\n", binding.Name)
	}
}
