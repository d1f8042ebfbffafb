// Generated from openapi.json by `npm run gen`. Do not edit.

export interface paths {
    "/api/hosts/join": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * @description Exchange a join token for a certificate of the fleet. `python -m lora_engine --join` does it. The same key
         *     may ask again, as the answer may have been lost.
         */
        post: operations["join_fleet"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/invitations/accept": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Join as the signed-in person, or with a new account, which is then signed in. */
        post: operations["accept_invitation"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/invitations/read": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Read an invitation by its token, which is sent in the body, because addresses are logged. */
        post: operations["read_invitation"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/audit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List who changed what in all tenants, and who signed in. */
        get: operations["list_operator_audit"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/audit.csv": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read the whole log of all tenants as CSV, newest first. */
        get: operations["read_operator_audit_csv"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/base-model": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description The base model that was approved first, and who decided that. `GET base-models` lists all. */
        get: operations["read_base_model"];
        /** @description Serve the base model of a host from now on, and no other. Hosts of others go into quarantine. */
        put: operations["set_base_model"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/base-models": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Base models that are served, those that hosts have and nobody approved, and those that were withdrawn. */
        get: operations["list_base_models"];
        put?: never;
        /** @description Serve the base model of a host from now on, beside the others. */
        post: operations["approve_base_model"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/base-models/{digest}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** @description Withdraw a base model: its hosts go into quarantine, and its adapters cannot be called. */
        delete: operations["withdraw_base_model"];
        options?: never;
        head?: never;
        /** @description Rename a served base model, or set after which time without requests it needs no host. */
        patch: operations["change_base_model"];
        trace?: never;
    };
    "/api/operator/fairness": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read the gaps between the service of tenants that waited on each host, with the fair order's bound. */
        get: operations["read_fairness"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/hosts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Engine hosts with the adapters of all tenants. */
        get: operations["list_all_hosts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/hosts/{host_name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** @description Revoke a host that joined, and take it out of the lists. Its name is free again. */
        delete: operations["forget_host"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/hosts/{host_name}/credential": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** @description Take back the credential of a host that joined. It is in quarantine at once; its requests go on at others. */
        delete: operations["revoke_host"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/hosts/{host_name}/pages": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description The owner of each page of a host's pool, of all tenants. */
        get: operations["read_all_host_pages"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/hosts/{host_name}/restart": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * @description Have a host's engine drain and end, to be started anew by what supervises it. `GET hosts` says how far it
         *     is. Answers that were cut off go on at other hosts, or when it is back.
         */
        post: operations["restart_host"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/hosts/{host_name}/service": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * @description Cordon a host (nothing new goes there), drain it (its engine takes nothing from anybody), or end either.
         *     Requests that run there go on to their end.
         */
        put: operations["set_host_service"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/join-tokens": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Tokens with which machines can join as engine hosts, and those of the last days that are over. */
        get: operations["list_join_tokens"];
        put?: never;
        /** @description Let one machine join as an engine host, once. */
        post: operations["create_join_token"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/join-tokens/{token_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** @description Let no machine join with the token any more. A host that did join stays. */
        delete: operations["withdraw_join_token"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/prices": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Every version of every price list, newest first. */
        get: operations["list_operator_prices"];
        put?: never;
        /** @description Publish new prices, of all base models or of one, from a day to come on. */
        post: operations["publish_prices"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/prices/end": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description End a base model's own prices, from a day to come on: the installation's list counts for it again. */
        post: operations["end_base_prices"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/refusals/series": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read refusals over time of all tenants, or of one. */
        get: operations["read_operator_refusal_series"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/report": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description All tenants: usage, cost, latency, and whose time the devices spent; on all base models or one. */
        get: operations["read_operator_report"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/series": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read usage over time of all tenants, of one, or of a host and its tenants; on all base models or one. */
        get: operations["read_operator_series"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/staging": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Versions of all tenants on their way to hosts: how far, how often tried, and what went wrong. */
        get: operations["list_staging"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/staging/{placement_id}/retry": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Try to stage a placement now, without waiting for the pause after a failure. */
        post: operations["retry_staging"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/tenants": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description All tenants, a page at a time, with what each used in the last 30 days. */
        get: operations["list_tenants"];
        put?: never;
        /** @description Make a tenant and invite its first owner. */
        post: operations["create_tenant"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/tenants/{slug}/statement": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read what a month of a tenant cost, line by line. */
        get: operations["read_tenant_statement"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/tenants/{tenant}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read a tenant, its open invitations and objectives. Its audit log records that an operator did. */
        get: operations["read_tenant"];
        put?: never;
        post?: never;
        /**
         * @description Delete a tenant for good: its members leave, its keys are revoked, its texts deleted, its adapters archived.
         *     Its usage, statements and audit log stay, and its short name is never given again. What runs goes on to its
         *     end and is billed.
         */
        delete: operations["delete_tenant"];
        options?: never;
        head?: never;
        /** @description Change the tenant's name for people. Its short name, in addresses, stays. */
        patch: operations["rename_tenant"];
        trace?: never;
    };
    "/api/operator/tenants/{tenant}/adapters": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description A tenant's adapters by name, each with its newest version. */
        get: operations["list_tenant_adapters"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/tenants/{tenant}/budgets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read what a tenant may spend and has spent. */
        get: operations["read_granted_budgets"];
        /** @description Set what a tenant may spend; a budget that is left out is lifted. */
        put: operations["grant_budgets"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/tenants/{tenant}/invitations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Invite a person into a tenant, also as its owner. */
        post: operations["invite_to_tenant"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/tenants/{tenant}/limits": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read the limits that a tenant is granted. */
        get: operations["read_tenant_limits"];
        /** @description Set all limits of a tenant; one that is left out is lifted. In force within two seconds. */
        put: operations["set_tenant_limits"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/tenants/{tenant}/members": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List a tenant's members and their roles, by their address. */
        get: operations["list_tenant_members"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/tenants/{tenant}/members/{user_id}/second-factor": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * @description Remove the second factors of a member who lost them, and end their sessions. The password then signs in
         *     alone, so make sure that it is really them. Needs a recent confirmation of your own identity.
         */
        delete: operations["reset_second_factor"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/tenants/{tenant}/objectives": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /** @description Set a tenant's latency objectives; one that is left out is lifted. In force within two seconds. */
        put: operations["set_tenant_objectives"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/tenants/{tenant}/suspension": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * @description Refuse a tenant's keys with 403 within a second and let its members only read. Websockets are closed;
         *     requests that run go on to their end and are billed. Its adapters stay where they are.
         */
        put: operations["suspend_tenant"];
        post?: never;
        /** @description End a tenant's suspension: keys and roles are what they were. */
        delete: operations["resume_tenant"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/tenants/{tenant}/weight": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /** @description Set a tenant's share of the hosts when they are full. */
        put: operations["set_tenant_weight"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operator/usage.csv": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Usage of all tenants as CSV. */
        get: operations["read_operator_csv"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/password": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Change one's password. All other sessions of the person end. */
        post: operations["change_password"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/password/forgot": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Mail a link for choosing a new password. The answer is the same if there is no such account. */
        post: operations["forgot_password"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/password/reset": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Choose a new password with a link's token. All sessions of the person end. */
        post: operations["reset_password"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/profile": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /** @description Change the name that other members see. */
        put: operations["change_name"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/second-factors": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read one's second factors. */
        get: operations["read_second_factors"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/second-factors/app": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Make the secret of an authenticator app. An app in use stays in use until the new one is confirmed. */
        post: operations["set_up_authenticator_app"];
        /** @description Remove the authenticator app. */
        delete: operations["remove_authenticator_app"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/second-factors/app/confirm": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Put the new app in use with a code that it shows. With the first second factor, other sessions end. */
        post: operations["confirm_authenticator_app"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/second-factors/passkeys": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Add a passkey. With the first second factor, other sessions end. */
        post: operations["add_passkey"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/second-factors/passkeys/{passkey_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** @description Remove a passkey. */
        delete: operations["remove_passkey"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/second-factors/passkeys/options": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Make the options of navigator.credentials.create, for a new passkey. */
        post: operations["begin_passkey"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/second-factors/recovery-codes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Make new recovery codes. The earlier ones end. */
        post: operations["replace_recovery_codes"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/session": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read the session: the signed-in person, and the CSRF token to send. Always 200. */
        get: operations["read_session"];
        put?: never;
        /** @description Log in. If the person has a second factor, the session starts with POST /api/session/second-factor. */
        post: operations["log_in"];
        /** @description Log out. */
        delete: operations["log_out"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/session/confirmation": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read what confirms that it is you. */
        get: operations["read_confirmation_methods"];
        put?: never;
        /** @description Confirm that it is you, for ten minutes, by the second factor, or by the password if there is none. */
        post: operations["confirm_identity"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/session/passkey": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Make the options of navigator.credentials.get, to complete a log-in or to confirm one's identity. */
        post: operations["request_passkey"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/session/second-factor": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read which second factors the sign-in of this browser can be completed with. */
        get: operations["read_second_factor_methods"];
        put?: never;
        /** @description Complete a log-in with a code or a passkey. */
        post: operations["log_in_with_second_factor"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List one's sessions, the last used first. */
        get: operations["list_sessions"];
        put?: never;
        post?: never;
        /** @description Sign out everywhere else. Websockets of those sessions close. */
        delete: operations["end_other_sessions"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{session_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** @description Sign one device out. Its websockets close. */
        delete: operations["end_session"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/adapters": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List active adapters, by name unless sorted otherwise, all or a part. */
        get: operations["list_adapters"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/adapters/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read an adapter with its versions and aliases. */
        get: operations["read_adapter"];
        put?: never;
        post?: never;
        /** @description Archive the adapter: it can no longer be called, and its name is free. It can be restored for a while. */
        delete: operations["archive_adapter"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/adapters/{name}/aliases/{alias}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /** @description Create the alias, or point it at another version. Running requests keep the version they started with. */
        put: operations["set_alias"];
        post?: never;
        /** @description Remove an alias of the adapter. */
        delete: operations["remove_alias"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/adapters/{name}/aliases/{alias}/canary": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Compare a canary with the alias's regular version. */
        get: operations["read_canary"];
        /** @description Give a version a share of the alias's requests. The canary ends by itself if it performs worse. */
        put: operations["set_canary"];
        post?: never;
        /** @description End the canary: all requests go to the alias's regular version again. */
        delete: operations["stop_canary"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/adapters/{name}/aliases/{alias}/rollback": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Point the alias back at its previous version. */
        post: operations["roll_back_alias"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/adapters/{name}/pin": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read whether the adapter is pinned, and how much memory that takes. */
        get: operations["read_pin"];
        /** @description Keep the live version loaded on the hosts that have it, so that no request waits for it. */
        put: operations["pin_adapter"];
        post?: never;
        /** @description Let hosts evict it when others need the room. */
        delete: operations["unpin_adapter"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/adapters/{name}/promotion-rule": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /** @description Set the score that a version needs to become live or a canary. New versions are evaluated automatically. */
        put: operations["set_promotion_rule"];
        post?: never;
        /** @description Remove the rule: any ready version may become live. */
        delete: operations["remove_promotion_rule"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/adapters/{name}/versions/{number}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read a version with its validation report and placements. */
        get: operations["read_version"];
        put?: never;
        post?: never;
        /** @description Delete a version permanently. Refused while an alias or a canary needs it; its usage stays in the ledger. */
        delete: operations["delete_version"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/adapters/{name}/versions/{number}/archive": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Archive a version. Refused while an alias or a canary needs it. It can be restored for a while. */
        post: operations["archive_version"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/adapters/{name}/versions/{number}/confirm-base": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Confirm that the base model which the version names (`named_base`) is the served one. */
        post: operations["confirm_base"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/adapters/{name}/versions/{number}/confirm-effect": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Confirm that a version may be live although it is flagged (`asks_for_effect`). */
        post: operations["confirm_effect"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/adapters/{name}/versions/{number}/dtype": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /** @description Set the dtype in which hosts with adapters in FP8 serve this version. Requests that run keep theirs. */
        put: operations["set_adapter_dtype"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/adapters/{name}/versions/{number}/promote": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Make this version the live one, which the bare adapter name means. */
        post: operations["promote_version"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/adapters/{name}/versions/{number}/restage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Bring this version to every host again. */
        post: operations["restage_version"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/adapters/{name}/versions/{number}/restore": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Restore an archived version. It is staged on the hosts again. */
        post: operations["restore_version"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/adapters/{name}/versions/{number}/tiers": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read on which tier of each host the version is, and how long a request would wait for it from each. */
        get: operations["read_version_tiers"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/api-settings": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Return how the inference API treats unknown fields and stored responses of this tenant. */
        get: operations["read_api_settings"];
        /** @description Set both. The change applies within a second; stored responses remain until they expire. */
        put: operations["set_api_settings"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/archived-adapters": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List the archived adapters that can be restored, all or a part; the latest first unless sorted otherwise. */
        get: operations["list_archived_adapters"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/archived-adapters/{adapter_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** @description Delete an archived adapter permanently; its usage stays in the ledger. */
        delete: operations["delete_archived_adapter"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/archived-adapters/{adapter_id}/restore": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Restore an archived adapter with its versions and aliases. The versions are staged again. */
        post: operations["restore_adapter"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/audit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List who changed what in this tenant, newest first. */
        get: operations["list_audit"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/audit.csv": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read the whole log as CSV, newest first. */
        get: operations["read_audit_csv"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/batches": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List batches, newest first; `search` matches the input file's name. */
        get: operations["list_tenant_batches"];
        put?: never;
        /** @description Upload a file of requests and create a batch, which runs within a day, whenever no other request waits. */
        post: operations["create_tenant_batch"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/batches/{batch_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Return a batch with its progress. */
        get: operations["read_tenant_batch"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/batches/{batch_id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Cancel a batch. Results that exist are kept, and are in the output file; the other requests never run. */
        post: operations["cancel_tenant_batch"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/batches/{batch_id}/errors": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List why a batch failed: the lines of its file that are not valid requests, at most a hundred. */
        get: operations["list_batch_errors"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/bucket-credentials": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List the buckets that this tenant has credentials for. The keys are never shown. */
        get: operations["list_bucket_credentials"];
        put?: never;
        /** @description Set the credentials with which a bucket is imported from. They are stored encrypted. */
        post: operations["set_bucket_credentials"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/bucket-credentials/{bucket}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** @description Remove the credentials of a bucket. */
        delete: operations["remove_bucket_credentials"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/budgets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read what the tenant and its keys may spend in a day and month, and what they have spent. */
        get: operations["read_budgets"];
        /** @description Set the tenant's own budgets, which the operator's bound; one that is left out is lifted. */
        put: operations["set_budgets"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/evaluation-sets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List the tenant's evaluation sets, fifty at most. */
        get: operations["list_evaluation_sets"];
        put?: never;
        /** @description Create a set of prompts with expected answers. It never changes, so that its scores can be compared. */
        post: operations["create_evaluation_set"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/evaluation-sets/{set_name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read a set, without its items. */
        get: operations["read_evaluation_set"];
        put?: never;
        post?: never;
        /** @description Delete a set; scores stay. Refused while an evaluation runs with it or a promotion rule names it. */
        delete: operations["delete_evaluation_set"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/evaluations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List evaluations, newest first; `search` by the adapter's name. */
        get: operations["list_evaluations"];
        put?: never;
        /** @description Score a version, the live one and the base model once it is ready. The requests yield to all others. */
        post: operations["start_evaluation"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/evaluations/{evaluation_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read an evaluation's progress or result. */
        get: operations["read_evaluation"];
        put?: never;
        post?: never;
        /** @description Cancel an evaluation and its batch; it stays in the list. */
        delete: operations["cancel_evaluation"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/export-schedules": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List the schedules of exports. */
        get: operations["list_export_schedules"];
        put?: never;
        /** @description Have each week or month exported once it is over. */
        post: operations["add_export_schedule"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/export-schedules/{schedule_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** @description Delete an export schedule; its exports stay. */
        delete: operations["delete_export_schedule"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/exports": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List the latest fifty exports, newest first. */
        get: operations["list_exports"];
        put?: never;
        /** @description Have usage written to a file: `from` and `to`, or the last `days`. */
        post: operations["request_export"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/exports/{export_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read the state of an export. */
        get: operations["read_export"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/exports/{export_id}/file": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Download the file of an export: CSV, compressed with gzip. */
        get: operations["download_export"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/files": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List files, newest first: uploads, and files that batches wrote. */
        get: operations["list_tenant_files"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/files/{file_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** @description Delete a file before it expires. */
        delete: operations["delete_tenant_file"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/files/{file_id}/content": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Download a file. It may hold prompts and answers, so the caller needs the permission to infer. */
        get: operations["download_file"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/follows": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List the branches that adapters follow, with the result of the last check. */
        get: operations["list_follows"];
        put?: never;
        /** @description Have an adapter follow a branch: imported soon, and as a new version whenever the branch has moved. */
        post: operations["add_follow"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/follows/{follow_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** @description Stop following a branch. The versions stay. */
        delete: operations["remove_follow"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/hosts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Engine hosts with load, memory pages, and which of the tenant's adapters they hold. */
        get: operations["list_hosts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/hosts/{host_name}/pages": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description The owner of each page of a host's pool: the tenant's own by adapter, others' only as taken. */
        get: operations["read_host_pages"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/hub-models": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read if requests may name repositories of the Hub as their model, and those imported for requests. */
        get: operations["read_hub_models"];
        /** @description Let requests name repositories of the Hub, of all organisations or of some, or end that. */
        put: operations["set_hub_models"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/hub-token": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read if this tenant has a token for the Hub. The token itself is never shown. */
        get: operations["read_hub_token"];
        /** @description Set the token with which private repositories are imported. It is stored encrypted. */
        put: operations["set_hub_token"];
        post?: never;
        /** @description Remove the tenant's token for private repositories. */
        delete: operations["remove_hub_token"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/imports": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Import an adapter from the Hugging Face Hub, a bucket or an https address, as an upload like any other. */
        post: operations["create_import"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/invitations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List the invitations that are not accepted or revoked, expired ones included, newest first, all or a part. */
        get: operations["list_invitations"];
        put?: never;
        /** @description Invite a person by e-mail. The answer contains the link, this once. */
        post: operations["invite"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/invitations/{invitation_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** @description Revoke an invitation. Its link stops working. */
        delete: operations["revoke_invitation"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/keys": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * @description List the tenant's keys, by default newest first and with revoked ones, all or a part. Secrets are never shown
         *     again.
         */
        get: operations["list_keys"];
        put?: never;
        /** @description Create a key. The answer contains its secret, this once. */
        post: operations["create_key"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/keys/{key_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** @description Revoke a key. It stops working at once, and its sockets close. */
        delete: operations["revoke_key"];
        options?: never;
        head?: never;
        /** @description Change a key's name, scopes or expiry. Its secret stays valid. */
        patch: operations["change_key"];
        trace?: never;
    };
    "/api/tenants/{tenant}/keys/{key_id}/budgets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read what a key may spend in a day and month, and what it has spent. */
        get: operations["read_key_budgets"];
        /** @description Set the budgets of a key; one that is left out is lifted. */
        put: operations["set_key_budgets"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/keys/{key_id}/limits": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /** @description Set all limits of a key; one that is left out is lifted. In force within two seconds. */
        put: operations["set_key_limits"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/keys/{key_id}/rotate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Give a key a new secret, shown this once. The old one is accepted for `grace_s` more seconds. */
        post: operations["rotate_key"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/limits": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read the limits of the tenant and its keys, all or a part of these, and the current usage of each. */
        get: operations["read_limits"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/members": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List the tenant's members and their roles, all or a part. */
        get: operations["list_members"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/members/{user_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** @description Remove a member. Their open sockets close; keys that they created stay. */
        delete: operations["remove_member"];
        options?: never;
        head?: never;
        /** @description Give a member another role, which applies from their next request on. */
        patch: operations["change_role"];
        trace?: never;
    };
    "/api/tenants/{tenant}/membership": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** @description Remove the caller from the tenant's members. */
        delete: operations["leave_tenant"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/models": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List the models: the base models, then every adapter with a ready live version, all or a part. */
        get: operations["list_models"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/origins": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read the origins of web pages that may call inference with this tenant's keys. */
        get: operations["read_allowed_origins"];
        /**
         * @description Allow exactly these origins, within a second.
         *
         *     Visitors of a page can read its key: set limits for that key.
         */
        put: operations["set_allowed_origins"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/overview": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read the adapters, the last day, hosts and the latest requests. */
        get: operations["read_overview"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/pinned-prefixes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * @description Keep the beginning of prompts in the KV cache of the hosts that answer for a model. It is computed in the
         *     background, at nobody's cost; its text is stored until it is unpinned.
         */
        post: operations["pin_prefix"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/pinned-prefixes/{prefix_name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description A pinned prefix with its text. */
        get: operations["read_pinned_prefix"];
        put?: never;
        post?: never;
        /** @description Let hosts evict it, and delete its text. */
        delete: operations["unpin_prefix"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/pins": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Adapters and prefixes that the tenant keeps in device memory, and how much of its quota they take. */
        get: operations["list_pins"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/prices": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Every version of every price list, newest first. */
        get: operations["list_prices"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/recording": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Return whether prompts and answers of this tenant's requests are stored. Every member may read this. */
        get: operations["read_recording"];
        /** @description Turn recording on or off. The change takes effect within a second; stored transcripts stay for `days`. */
        put: operations["set_recording"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/refusals": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Requests that were refused before they reached an engine, counted by minute and reason, newest first. */
        get: operations["list_refusals"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/refusals/series": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read refusals over time, by code; `series` has the requests that reached an engine. */
        get: operations["read_refusal_series"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/requests": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Recent requests, newest first. With filters but no `since` and no `id`, of the 30 days before `until`. */
        get: operations["list_requests"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/requests/{request_id}/transcript": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Return prompt and answer of one request; 404 if they were not stored. */
        get: operations["read_transcript"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/security": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read whether members must have a second factor. */
        get: operations["read_tenant_security"];
        /**
         * @description Require a second factor of all members, at once, or end that. You need one yourself, and a recent
         *     confirmation that it is you.
         */
        put: operations["set_tenant_security"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/series": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read traffic, errors, tokens, cost and latency over time: of a tenant, an adapter, a host or a base model. */
        get: operations["read_series"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/series/parts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List the usage of each adapter or key in a window of time, those with most first, a part at a time. */
        get: operations["list_usage_parts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/slo": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read the tenant's latency objectives, how often they were met in the last days, and the error budget. */
        get: operations["read_slo"];
        /** @description Set the objectives; one that is left out is lifted. In force within two seconds. */
        put: operations["set_slo"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/socket-ticket": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description A ticket to send as the first message of one websocket, from a page of ours. */
        post: operations["make_socket_ticket"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/statement": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read what a month (UTC) cost, line by line; the current month so far. */
        get: operations["read_statement"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/storage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read the storage that the tenant's adapters take. */
        get: operations["read_storage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/transcripts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Return prompt and answer of one request; an empty list if they were not stored. */
        get: operations["find_transcripts"];
        put?: never;
        post?: never;
        /** @description Delete every stored prompt and answer now. */
        delete: operations["delete_transcripts"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/uploads": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List uploads, newest first; `search` by the adapter's name. */
        get: operations["list_uploads"];
        put?: never;
        /** @description Upload an adapter. It is validated in the background; read the upload or listen for `upload.updated`. */
        post: operations["create_upload"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/uploads/{upload_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read an upload, with its validation report once it is decided. */
        get: operations["read_upload"];
        put?: never;
        post?: never;
        /** @description Cancel an upload or an import that is not decided yet, and remove its files. */
        delete: operations["cancel_upload"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/usage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Requests, tokens, device time and cost of the last days: by day, adapter, base model and key. */
        get: operations["read_usage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/usage.csv": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Usage by day or hour, adapter version, key, base model and outcome, as CSV. */
        get: operations["read_usage_csv"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/webhooks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List the endpoints that receive the tenant's events. */
        get: operations["list_webhooks"];
        put?: never;
        /** @description Register an endpoint. Its secret is in this answer only. */
        post: operations["create_webhook"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/webhooks/{webhook_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description Read one webhook endpoint. */
        get: operations["read_webhook"];
        /** @description Change an endpoint's address and events. */
        put: operations["change_webhook"];
        post?: never;
        /** @description Remove an endpoint with its log. */
        delete: operations["delete_webhook"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/webhooks/{webhook_id}/deliveries": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description List the latest hundred messages with every attempt, newest first. */
        get: operations["list_deliveries"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/webhooks/{webhook_id}/deliveries/{delivery_id}/replay": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Send a message again. */
        post: operations["replay_delivery"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/webhooks/{webhook_id}/rotate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Make a new secret; for a day messages are signed under the old one too. */
        post: operations["rotate_webhook_secret"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/tenants/{tenant}/webhooks/{webhook_id}/test": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** @description Send a message of type "test". Ten a minute for a tenant; 429 says when the next may follow. */
        post: operations["test_webhook"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/version": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description The version of this server. No key is needed. */
        get: operations["get_version"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        AcceptInvitationRequest: {
            name?: string;
            /** @description For a new account. */
            password?: string;
            token: string;
        };
        /**
         * @description * `user` - User
         *     * `key` - Key
         *     * `system` - System
         * @enum {string}
         */
        ActorKind: "user" | "key" | "system";
        /** @description An adapter in a list. Rank, targets, size and base are those of the live version, else of the newest. */
        Adapter: {
            aliases: components["schemas"]["Alias"][];
            base_model: string | null;
            bytes: number | null;
            /** Format: date-time */
            created_at: string;
            description: string;
            live_version: number | null;
            name: string;
            promotion_rule: components["schemas"]["PromotionRule"] | null;
            rank: number | null;
            status: components["schemas"]["AdapterStatus"];
            targets: string[];
            versions: components["schemas"]["VersionSummary"][];
            versions_count: number;
        };
        AdapterCounts: {
            ready: number;
            total: number;
        };
        /**
         * @description * `auto` - Auto
         *     * `bf16` - Bf16
         *     * `fp8` - Fp8
         * @enum {string}
         */
        AdapterDtypeEnum: "auto" | "bf16" | "fp8";
        AdapterDtypeRequest: {
            adapter_dtype: components["schemas"]["AdapterDtypeEnum"];
        };
        AdapterManifest: {
            base_model_name: string;
            dtype: string;
            layers: number[];
            num_modules: number;
            num_parameters: number;
            num_tensors: number;
            rank: number;
            /** @description Target -> its ranks. */
            ranks: {
                [key: string]: number[];
            };
            /** @description Target -> its scales. */
            scales: {
                [key: string]: number[];
            };
            targets: string[];
            weight_bytes: number;
        };
        /**
         * @description * `device` - device
         *     * `host` - host
         *     * `disk` - disk
         *     * `store` - store
         * @enum {string}
         */
        AdapterPlace: "device" | "host" | "disk" | "store";
        AdapterReference: {
            name: string;
            tenant: string;
        };
        /**
         * @description * `empty` - Empty
         *     * `validated` - Validated
         *     * `staging` - Staging
         *     * `ready` - Ready
         *     * `failed` - Failed
         *     * `archived` - Archived
         * @enum {string}
         */
        AdapterStatus: "empty" | "validated" | "staging" | "ready" | "failed" | "archived";
        AdapterStorage: {
            bytes: number;
            name: string;
            versions: number;
        };
        /** @description An adapter in a list. Rank, targets, size and base are those of the live version, else of the newest. */
        AdapterSummary: {
            base_model: string | null;
            bytes: number | null;
            /** Format: date-time */
            created_at: string;
            description: string;
            live_version: number | null;
            name: string;
            rank: number | null;
            status: components["schemas"]["AdapterStatus"];
            targets: string[];
            versions_count: number;
        };
        /**
         * @description * `device` - device
         *     * `host` - host
         *     * `disk` - disk
         * @enum {string}
         */
        AdapterTier: "device" | "host" | "disk";
        AdapterUsage: {
            /** @description Null = the base model. */
            adapter: string | null;
            cached_prompt_tokens: number;
            completion_tokens: number;
            /** @description Millionths of the currency, without storage. */
            cost_micros: number;
            /** @description Share of the devices' time, in microseconds. */
            device_us: number;
            prompt_tokens: number;
            requests: number;
        };
        AddedPasskey: {
            passkey: components["schemas"]["Passkey"];
            /** @description Shown this once. Empty unless this was the first second factor. */
            recovery_codes: string[];
        };
        /** @description The distance of a version's answers on a quantised base from those on the unquantised one, and the base's own. */
        Agreement: {
            /** @description With the version. */
            adapter: components["schemas"]["AgreementFigures"] | null;
            /** @description Without the version; null until it is measured. */
            base: components["schemas"]["AgreementFigures"] | null;
            /** @description Compared with the dequantised weights: the checkpoint of the base is quantised and has no others. */
            dequantised: boolean;
            elapsed_ms: number;
            /** @description Of each layer: the norm of what quantisation changes in its matrices, by the norm of those. */
            layer_changes: number[];
            outcome: components["schemas"]["AgreementOutcome"];
            /** @description In the order of the effect's prompts. */
            prompts: components["schemas"]["PromptAgreement"][];
            /** @description Why it differs, or why it was not measured and what to do. */
            reason: string;
        };
        /** @description Served answers compared with those of the same model without its quantisation. */
        AgreementFigures: {
            /** @description How many the unquantised model chooses too, behind the same text. */
            agreeing: number;
            /** Format: double */
            largest_distance: number;
            /**
             * Format: double
             * @description Of log-probabilities, on the prompts.
             */
            mean_distance: number;
            /** @description How many were generated. */
            tokens: number;
        };
        /**
         * @description * `pending` - Pending
         *     * `agrees` - Agrees
         *     * `differs` - Differs
         *     * `not_measured` - Not Measured
         * @enum {string}
         */
        AgreementOutcome: "pending" | "agrees" | "differs" | "not_measured";
        Alias: {
            canary?: number | null;
            canary_percent: number | null;
            /** Format: date-time */
            canary_since: string | null;
            name: string;
            /** @description Where a rollback leads. */
            previous?: number | null;
            rolled_back: components["schemas"]["CanaryRollback"] | null;
            /**
             * Format: date-time
             * @description Since when it points at this version, whatever canary it had.
             */
            updated_at: string;
            version: number;
        };
        AliasTargetRequest: {
            version: number;
        };
        /** @description The origins of web pages that may call inference with this tenant's keys. */
        AllowedOrigins: {
            /** @description Like https://app.example.org, without a path. None by default. */
            origins: string[];
        };
        /** @description The origins of web pages that may call inference with this tenant's keys. */
        AllowedOriginsRequest: {
            /** @description Like https://app.example.org, without a path. None by default. */
            origins: string[];
        };
        /** @description An item of an evaluation set; answers are null where only probabilities were requested. */
        AnsweredItem: {
            base: string | null;
            expected: string;
            /** @description Of the set, from 1. */
            line: number;
            live: string | null;
            /** @description Its end, if it is long. */
            prompt: string;
            /**
             * Format: double
             * @description Of the version.
             */
            score: number;
            version: string | null;
        };
        /**
         * @description * `chat.completions` - Chat
         *     * `completions` - Completions
         *     * `embeddings` - Embeddings
         * @enum {string}
         */
        ApiEndpoint: "chat.completions" | "completions" | "embeddings";
        ApiKey: {
            /** Format: date-time */
            created_at: string;
            created_by?: string | null;
            /** Format: date-time */
            expires_at: string | null;
            /** Format: uuid */
            id: string;
            /** Format: date-time */
            last_used_at: string | null;
            name: string;
            /** @description Public part of the key: `lk_<prefix>_...`. */
            prefix: string;
            /**
             * Format: date-time
             * @description Until when the secret before the last rotation is accepted.
             */
            previous_until: string | null;
            /** Format: date-time */
            revoked_at: string | null;
            /** Format: date-time */
            rotated_at: string | null;
            scopes: components["schemas"]["KeyScope"][];
        };
        /** @description The settings of the inference API for this tenant's requests. */
        ApiSettings: {
            /** @description Store no answer of /v1/responses, whatever its request says: previous_response_id has no use then. */
            never_store_responses: boolean;
            /** @description Refuse requests with unknown fields, instead of leaving the fields out and naming them in the header X-Lorikeet-Ignored. */
            refuse_unknown_fields: boolean;
        };
        /** @description The settings of the inference API for this tenant's requests. */
        ApiSettingsRequest: {
            /** @description Store no answer of /v1/responses, whatever its request says: previous_response_id has no use then. */
            never_store_responses: boolean;
            /** @description Refuse requests with unknown fields, instead of leaving the fields out and naming them in the header X-Lorikeet-Ignored. */
            refuse_unknown_fields: boolean;
        };
        App: {
            /** Format: date-time */
            created_at: string;
            /** Format: date-time */
            last_used_at: string | null;
        };
        ApprovedBaseModelRequest: {
            /** @description The base model that this host serves at the moment. */
            host: string;
            /** @description What callers put into `model`; else the engine's name for it, or that by which it was served. */
            name?: string;
        };
        AppSetup: {
            /** @description Rows of the QR code: 1 is a dark module. */
            qr: string[];
            /** @description In base32, to type into an app that cannot scan. */
            secret: string;
            /** @description The otpauth:// URI that the QR code holds. */
            uri: string;
        };
        /** @description An adapter that can be restored, with the versions that were archived with it. */
        ArchivedAdapter: {
            /** Format: date-time */
            archived_at: string;
            description: string;
            /** Format: uuid */
            id: string;
            /** Format: date-time */
            readonly kept_until: string;
            name: string;
            versions_count: number;
        };
        /**
         * @description * `warn` - Warn
         *     * `refuse` - Refuse
         * @enum {string}
         */
        AtLimitEnum: "warn" | "refuse";
        /**
         * @description The attainment of the current objective by answered requests, as the engine measured them. Failed requests count
         *     as measured and as not met.
         */
        Attainment: {
            /**
             * Format: double
             * @description met / measured.
             */
            attainment: number | null;
            budget: components["schemas"]["ErrorBudget"] | null;
            burn: components["schemas"]["BurnRate"][];
            by_day: components["schemas"]["AttainmentDay"][];
            measured: number;
            met: number | null;
            objective_ms: number | null;
            percentiles: components["schemas"]["Percentiles"];
        };
        AttainmentDay: {
            /** Format: double */
            attainment: number | null;
            /**
             * Format: date
             * @description UTC.
             */
            date: string;
            measured: number;
        };
        AuditActor: {
            id: string;
            kind: components["schemas"]["ActorKind"];
            label: string;
        };
        AuditEvent: {
            /** @description "noun.verb". */
            action: string;
            actor: components["schemas"]["AuditActor"];
            /** Format: date-time */
            created_at: string;
            detail: {
                [key: string]: unknown;
            };
            id: number;
            request_id: string;
            target: components["schemas"]["AuditTarget"];
            tenant?: string | null;
        };
        AuditPage: {
            events: components["schemas"]["AuditEvent"][];
            /** @description Pass it as `before` for older rows. */
            next: number | null;
        };
        AuditTarget: {
            id: string;
            kind: string;
            label: string;
        };
        /** @description A base model that the installation serves. */
        BaseModel: {
            /** @description Digests of base models whose adapters it serves too. */
            adapters_of: string[];
            /** Format: date-time */
            decided_at: string;
            decided_by: string;
            digest: string;
            name: string;
            /** @description Without a request for so long it needs no host; 0 = never. */
            sleeps_after_s: number;
        };
        /**
         * @description * `served` - served
         *     * `waiting` - waiting
         *     * `withdrawn` - withdrawn
         * @enum {string}
         */
        BaseModelState: "served" | "waiting" | "withdrawn";
        BaseModelUsage: {
            /** @description By its name now; null of requests of before it was written down. */
            base_model: string | null;
            cached_prompt_tokens: number;
            completion_tokens: number;
            /** @description Millionths of the currency, without storage. */
            cost_micros: number;
            /** @description Share of the devices' time, in microseconds. */
            device_us: number;
            prompt_tokens: number;
            requests: number;
        };
        Batch: {
            /** @description Return the number of lines of the file that are not valid requests. */
            readonly bad_lines: number;
            readonly counts: components["schemas"]["RequestCounts"];
            /** Format: date-time */
            created_at: string;
            endpoint: components["schemas"]["BatchEndpoint"];
            error_file: components["schemas"]["StoredFile"] | null;
            /**
             * Format: date-time
             * @description Requests that have not run by this time are not run.
             */
            expires_at: string;
            /** @description The batch's id in /v1/batches. */
            id: string;
            /** @description Null if the file was deleted. */
            input_file: components["schemas"]["StoredFile"] | null;
            /** @description Name of the API key whose requests these are. */
            key: string;
            output_file: components["schemas"]["StoredFile"] | null;
            state: components["schemas"]["BatchState"];
        };
        /**
         * @description * `/v1/chat/completions` - /v1/chat/completions
         *     * `/v1/completions` - /v1/completions
         *     * `/v1/embeddings` - /v1/embeddings
         * @enum {string}
         */
        BatchEndpoint: "/v1/chat/completions" | "/v1/completions" | "/v1/embeddings";
        /**
         * @description * `validating` - Validating
         *     * `in_progress` - In Progress
         *     * `finalizing` - Finalizing
         *     * `completed` - Completed
         *     * `failed` - Failed
         *     * `expired` - Expired
         *     * `cancelling` - Cancelling
         *     * `cancelled` - Cancelled
         * @enum {string}
         */
        BatchState: "validating" | "in_progress" | "finalizing" | "completed" | "failed" | "expired" | "cancelling" | "cancelled";
        /** @description The credentials for a bucket. The keys are never shown. */
        BucketCredentials: {
            /** @description Its name. What was kept for it before is replaced. */
            bucket: string;
            /** Format: date-time */
            readonly created_at: string;
            /**
             * @description Empty for Amazon S3.
             * @default
             */
            endpoint: string;
            /** @default us-east-1 */
            region: string;
        };
        /** @description The credentials for a bucket. The keys are never shown. */
        BucketCredentialsRequest: {
            access_key_id: string;
            /** @description Its name. What was kept for it before is replaced. */
            bucket: string;
            /** @description Empty for Amazon S3. */
            endpoint?: string;
            /** @description By default us-east-1. */
            region?: string;
            secret_access_key: string;
            /** @description Of temporary credentials, which end by themselves; empty for others. */
            session_token?: string;
        };
        BudgetReport: {
            /** @description Null: there are no prices, so no budget can be set. */
            currency: string | null;
            /** @description By the operator. */
            granted: components["schemas"]["BudgetStates"];
            /** @description Of the keys that have one, the 50 with the least left. */
            keys: components["schemas"]["KeyBudgets"][];
            /** @description Keys that have one. */
            keys_total: number;
            /** @description By the tenant itself; all hold. */
            own: components["schemas"]["BudgetStates"];
        };
        BudgetRequest: {
            /** @description Per cent of the amount at which webhooks and the console tell. */
            alerts?: number[];
            /**
             * Format: int64
             * @description Millionths of the currency of the price list.
             */
            amount_micros: number;
            /**
             * @description refuse: 402 `budget_exceeded`; warn: only tell.
             *
             *     * `warn` - Warn
             *     * `refuse` - Refuse By default refuse.
             */
            at_limit?: components["schemas"]["AtLimitEnum"];
        };
        /** @description The budgets of a day and a month. One that is left out or null is lifted. */
        BudgetsRequest: {
            day?: components["schemas"]["BudgetRequest"] | null;
            month?: components["schemas"]["BudgetRequest"] | null;
        };
        BudgetState: {
            /** @description Per cent of the amount at which webhooks and the console tell. */
            alerts?: number[];
            /**
             * Format: int64
             * @description Millionths of the currency of the price list.
             */
            amount_micros: number;
            /**
             * @description refuse: 402 `budget_exceeded`; warn: only tell.
             *
             *     * `warn` - Warn
             *     * `refuse` - Refuse
             * @default refuse
             */
            at_limit: components["schemas"]["AtLimitEnum"];
            /** @description The highest threshold that is passed, in per cent. */
            reached: number | null;
            /** @description By the ledger; what runs is not in it. */
            spent_micros: number;
        };
        BudgetStates: {
            day: components["schemas"]["BudgetState"] | null;
            month: components["schemas"]["BudgetState"] | null;
        };
        BurnRate: {
            measured: number;
            missed: number | null;
            /**
             * Format: double
             * @description Misses / those that the target allows: 1 uses the budget up exactly.
             */
            rate: number | null;
            /** @description 1h, 6h, 1d, 7d before now. */
            window: string;
        };
        /**
         * @description * `week` - Week
         *     * `month` - Month
         * @enum {string}
         */
        Cadence: "week" | "month";
        /** @description The figures of a canary and of the alias's regular version; null without a canary. */
        CanaryComparison: {
            canary: components["schemas"]["VersionStats"] | null;
            /** @description Requests of each version below which nothing is judged. */
            least_requests: number;
            own: components["schemas"]["VersionStats"] | null;
        };
        /** @description The last canary that was ended for its figures. */
        CanaryRollback: {
            /** Format: date-time */
            at: string;
            code: string;
            message: string;
            version: number;
        };
        CanaryTargetRequest: {
            /** @description Of the alias's requests. */
            percent: number;
            version: number;
        };
        /**
         * @description * `view` - View
         *     * `infer` - Infer
         *     * `adapters.write` - Write Adapters
         *     * `keys.write` - Write Keys
         *     * `members.write` - Write Members
         *     * `budgets.write` - Write Budgets
         *     * `tenant.write` - Write Tenant
         *     * `webhooks.write` - Write Webhooks
         *     * `exports.write` - Write Exports
         *     * `audit.read` - Read Audit
         *     * `transcripts.read` - Read Transcripts
         *     * `transcripts.write` - Write Transcripts
         *     * `member` - Be Member
         *     * `operate` - Operate
         * @enum {string}
         */
        Capability: "view" | "infer" | "adapters.write" | "keys.write" | "members.write" | "budgets.write" | "tenant.write" | "webhooks.write" | "exports.write" | "audit.read" | "transcripts.read" | "transcripts.write" | "member" | "operate";
        ChangePasswordRequest: {
            current_password: string;
            password: string;
        };
        /** @description The chat template of an adapter, by which its chats are rendered. */
        ChatTemplate: {
            source: string;
            special_tokens: {
                [key: string]: string;
            };
            /** @description For requests with tools, if that is another. */
            tool_source: string;
        };
        CodeRequest: {
            /** @description A code of the authenticator app. */
            code: string;
        };
        /** @description Milliseconds; null while the host has not done such a load since it started. */
        ColdStarts: {
            /** Format: double */
            device: number | null;
            /** Format: double */
            disk: number | null;
            /** Format: double */
            host: number | null;
            /** Format: double */
            store: number | null;
        };
        CreatedApiKey: {
            /** Format: date-time */
            created_at: string;
            created_by?: string | null;
            /** Format: date-time */
            expires_at: string | null;
            /** Format: uuid */
            id: string;
            /** Format: date-time */
            last_used_at: string | null;
            name: string;
            /** @description Public part of the key: `lk_<prefix>_...`. */
            prefix: string;
            /**
             * Format: date-time
             * @description Until when the secret before the last rotation is accepted.
             */
            previous_until: string | null;
            /** Format: date-time */
            revoked_at: string | null;
            /** Format: date-time */
            rotated_at: string | null;
            scopes: components["schemas"]["KeyScope"][];
            /** @description The whole key. It is shown this once and kept nowhere. */
            secret: string;
        };
        CreatedInvitation: {
            /** Format: date-time */
            created_at: string;
            /** Format: email */
            email: string;
            /** Format: date-time */
            expires_at: string;
            /** Format: uuid */
            id: string;
            invited_by?: string | null;
            /** @description For the invited person alone. It is shown this once. */
            link: string;
            /** @description Whether the link is mailed to them. Without a mail server it is not: pass it on yourself. */
            mailed: boolean;
            role: components["schemas"]["Role"];
        };
        CreatedJoinToken: {
            /** Format: date-time */
            created_at: string;
            created_by: string;
            /** Format: date-time */
            expires_at: string;
            /** @description Empty: any new name. */
            host: string;
            /** Format: uuid */
            id: string;
            /** @description What to give to `--join`. */
            join_url: string;
            readonly state: string;
            /** @description Shown this once. */
            token: string;
            /** @description The host that joined with it. */
            used_by?: string | null;
        };
        CreatedTenant: {
            /** Format: date-time */
            created_at: string;
            /** Format: date-time */
            deleted_at: string | null;
            /** @description The owner's invitation. It is shown this once. */
            link: string;
            /** @description Whether it is mailed to them, which needs a mail server. */
            mailed: boolean;
            name: string;
            slug: string;
            state: components["schemas"]["TenantState"];
            /** Format: date-time */
            suspended_at: string | null;
            suspended_for: string;
            /** Format: double */
            weight: number;
        };
        DayUsage: {
            cached_prompt_tokens: number;
            completion_tokens: number;
            /** @description Millionths of the currency, without storage. */
            cost_micros: number;
            /**
             * Format: date
             * @description UTC.
             */
            date: string;
            /** @description Share of the devices' time, in microseconds. */
            device_us: number;
            prompt_tokens: number;
            requests: number;
        };
        Delivery: {
            attempts: number;
            /** Format: date-time */
            created_at: string;
            /** Format: date-time */
            delivered_at: string | null;
            /** Format: uuid */
            event: string;
            /** Format: uuid */
            id: string;
            log: components["schemas"]["DeliveryAttempt"][];
            /** Format: date-time */
            next_attempt_at: string;
            /** @description The message's `data`. */
            payload: unknown;
            state: components["schemas"]["DeliveryState"];
            type: components["schemas"]["EventType"];
        };
        DeliveryAttempt: {
            /** Format: date-time */
            at: string;
            duration_ms: number;
            error: string;
            status: number | null;
        };
        /**
         * @description * `pending` - Pending
         *     * `delivered` - Delivered
         *     * `failed` - Failed
         * @enum {string}
         */
        DeliveryState: "pending" | "delivered" | "failed";
        /** @description A session of the calling person. Its key is never sent. */
        Device: {
            /** @description Where it was last used from; empty for one from before this was kept. */
            address: string;
            /** Format: date-time */
            created_at: string;
            /** @description The one that asks. */
            current: boolean;
            /** Format: uuid */
            id: string;
            /**
             * Format: date-time
             * @description To five minutes.
             */
            last_seen_at: string;
            /** @description As the browser says it. */
            user_agent: string;
        };
        /** @description A host's comparison of a version in FP8 with itself in the dtype of the host's model. */
        DtypeReport: {
            /** @description Number of these after which the most likely token is the same. */
            agreeing: number;
            /** Format: date-time */
            at: string;
            elapsed_ms: number;
            /** Format: double */
            largest_distance: number;
            /**
             * Format: double
             * @description The least share of agreeing tokens with which FP8 is served.
             */
            least_agreeing: number;
            /**
             * Format: double
             * @description Of log-probabilities, in nats.
             */
            mean_distance: number;
            /**
             * Format: double
             * @description The largest mean distance with which FP8 is served.
             */
            most_distance: number;
            outcome: components["schemas"]["AgreementOutcome"];
            /** @description Why it is not served in FP8 with `auto`, or was not measured. */
            reason: string;
            /** @description Number of tokens of prompts and answers that were compared. */
            tokens: number;
        };
        EndPricesRequest: {
            /** @description Of the base model whose own prices end. */
            base_model_digest: string;
            /**
             * Format: date
             * @description From midnight UTC on the installation's list counts for it.
             */
            effective_on: string;
        };
        ErrorBudget: {
            /**
             * Format: double
             * @description Requests that may miss the objective.
             */
            allowed: number;
            /**
             * Format: double
             * @description Share of the budget; below 0 it is overdrawn.
             */
            left: number | null;
            missed: number;
        };
        Evaluation: {
            adapter: string;
            /** @description That runs them; null before it began. */
            readonly batch: string | null;
            /** Format: date-time */
            created_at: string;
            /** Format: date-time */
            ended_at: string | null;
            /** Format: uuid */
            id: string;
            /** @description Whose requests they are. */
            key: string;
            /** @description Why it waits or failed. */
            problem: components["schemas"]["Problem"] | null;
            score: components["schemas"]["Score"] | null;
            set: string;
            state: components["schemas"]["EvaluationState"];
            /** Format: uuid */
            upload: string | null;
            /** @description Null until its upload has become one. */
            version?: number | null;
        };
        /**
         * @description * `exact` - Exact
         *     * `contains` - Contains
         *     * `logprob` - Logprob
         * @enum {string}
         */
        EvaluationMetric: "exact" | "contains" | "logprob";
        EvaluationSet: {
            /** Format: date-time */
            created_at: string;
            items: number;
            /** @description Of an answer. */
            max_tokens: number;
            /**
             * @description exact: the answer is the expected text, white space around either ignored; contains: the answer contains it; logprob: the mean natural log-probability of its tokens after the prompt. A score is the mean over all items.
             *
             *     * `exact` - Exact
             *     * `contains` - Contains
             *     * `logprob` - Logprob
             */
            metric: components["schemas"]["EvaluationMetric"];
            name: string;
        };
        /**
         * @description * `waiting` - Waiting
         *     * `running` - Running
         *     * `completed` - Completed
         *     * `failed` - Failed
         *     * `cancelled` - Cancelled
         * @enum {string}
         */
        EvaluationState: "waiting" | "running" | "completed" | "failed" | "cancelled";
        /**
         * @description * `upload.accepted` - Upload Accepted
         *     * `upload.refused` - Upload Refused
         *     * `version.ready` - Version Ready
         *     * `version.failed` - Version Failed
         *     * `version.flagged` - Version Flagged
         *     * `version.promoted` - Version Promoted
         *     * `canary.failed` - Canary Failed
         *     * `adapter.archived` - Adapter Archived
         *     * `quota.warning` - Quota Warning
         *     * `quota.exhausted` - Quota Exhausted
         *     * `budget.alert` - Budget Alert
         *     * `export.ready` - Export Ready
         *     * `test` - Test
         * @enum {string}
         */
        EventType: "upload.accepted" | "upload.refused" | "version.ready" | "version.failed" | "version.flagged" | "version.promoted" | "canary.failed" | "adapter.archived" | "quota.warning" | "quota.exhausted" | "budget.alert" | "export.ready" | "test";
        Export: {
            bytes: number;
            /** Format: date-time */
            created_at: string;
            file_name: string;
            /** Format: date */
            first: string;
            grain: components["schemas"]["Grain"];
            /** Format: uuid */
            id: string;
            /** Format: date */
            last: string;
            lines: number;
            /** @description Where the single requests of archived months are; else empty. */
            readonly note: string;
            /** Format: date-time */
            ready_at: string | null;
            /** @description Made by a schedule. */
            scheduled: boolean;
            state: components["schemas"]["ExportState"];
        };
        ExportSchedule: {
            cadence: components["schemas"]["Cadence"];
            /** Format: date-time */
            created_at: string;
            created_by?: string | null;
            grain: components["schemas"]["Grain"];
            /** Format: uuid */
            id: string;
        };
        /**
         * @description * `queued` - Queued
         *     * `running` - Running
         *     * `ready` - Ready
         *     * `failed` - Failed
         * @enum {string}
         */
        ExportState: "queued" | "running" | "ready" | "failed";
        Fairness: {
            /** @description Those on which two tenants waited in this time. */
            hosts: components["schemas"]["HostFairness"][];
            /** Format: date-time */
            since: string;
            step_s: number;
            /** Format: date-time */
            until: string;
        };
        /**
         * @description * `batch` - Batch
         *     * `batch_output` - Batch Output
         * @enum {string}
         */
        FilePurpose: "batch" | "batch_output";
        /** @description The first steps of a new tenant, and whether each is done. */
        FirstSteps: {
            called: boolean;
            invited: boolean;
            /** @description The tenant or a key has a limit or a budget. */
            limited: boolean;
            uploaded: boolean;
        };
        ForgotPasswordRequest: {
            /** Format: email */
            email: string;
        };
        /**
         * @description * `day` - Day
         *     * `hour` - Hour
         * @enum {string}
         */
        Grain: "day" | "hour";
        /** @description An engine host by its last heartbeat: its load as a whole, and the tenant's own adapters on it. */
        Host: {
            adapters: components["schemas"]["ResidentAdapter"][];
            /** @description `adapters` shows at most 256, the busiest first. */
            adapters_total: number;
            boot_id: string;
            device: string;
            /** Format: date-time */
            last_seen: string | null;
            load_times?: components["schemas"]["LoadTime"][];
            model: string;
            name: string;
            /** @description One page over all layers. */
            page_bytes: number;
            pool: components["schemas"]["Pool"];
            /** @description Why it gets neither adapters nor requests; null if it does. */
            quarantine: components["schemas"]["Quarantine"] | null;
            restart?: components["schemas"]["RestartState"] | null;
            running: number;
            /**
             * @description What operators want of it. Cordoned and drained hosts get nothing new.
             *
             *     * `serving` - Serving
             *     * `cordoned` - Cordoned
             *     * `drained` - Drained
             */
            service: components["schemas"]["HostService"];
            /** @description The tenant's own; null while it has nothing there. */
            share?: components["schemas"]["Share"] | null;
            state: components["schemas"]["HostState"];
            /** Format: double */
            tokens_per_second: number;
            waiting: number;
        };
        HostFairness: {
            name: string;
            now: components["schemas"]["ServiceGap"] | null;
            points: components["schemas"]["ServiceGapPoint"][];
        };
        /** @description A map of a host's pool: the owner of each page. */
        HostPages: {
            /**
             * Format: double
             * @description Seconds since 1970.
             */
            at: number;
            boot_id: string;
            /** @description From when there are others, for ten minutes: seconds since 1970. */
            kept: number[];
            owners: components["schemas"]["PageOwner"][];
            page_bytes: number;
            /** @description In turn: an index into `owners`, and how many pages in a row are its. */
            runs: number[];
            total: number;
        };
        HostPin: {
            bytes: number;
            host: string;
            /** @description Whether the host keeps it loaded now. */
            pinned: boolean;
        };
        HostPrefix: {
            /** @description Of its device memory. */
            bytes: number;
            /** @description With `failed`. */
            error: components["schemas"]["Problem"] | null;
            host: string;
            /**
             * @description `computing`: or waiting for requests to leave it time and room. `no_room`, `over_quota`: older pins take all that a host, or the tenant, may. `off`: the host keeps no prefixes. `waiting`: it was not told yet.
             *
             *     * `kept` - Kept
             *     * `computing` - Computing
             *     * `no_room` - No Room
             *     * `over_quota` - Over Quota
             *     * `failed` - Failed
             *     * `off` - Off
             *     * `waiting` - Waiting
             */
            state: components["schemas"]["HostPrefixStateEnum"];
        };
        /**
         * @description * `kept` - Kept
         *     * `computing` - Computing
         *     * `no_room` - No Room
         *     * `over_quota` - Over Quota
         *     * `failed` - Failed
         *     * `off` - Off
         *     * `waiting` - Waiting
         * @enum {string}
         */
        HostPrefixStateEnum: "kept" | "computing" | "no_room" | "over_quota" | "failed" | "off" | "waiting";
        /**
         * @description * `serving` - Serving
         *     * `cordoned` - Cordoned
         *     * `drained` - Drained
         * @enum {string}
         */
        HostService: "serving" | "cordoned" | "drained";
        /**
         * @description * `unknown` - Unknown
         *     * `online` - Online
         *     * `draining` - Draining
         *     * `offline` - Offline
         * @enum {string}
         */
        HostState: "unknown" | "online" | "draining" | "offline";
        /** @description A branch: whenever it moves, the adapter gets a new version. */
        HubFollow: {
            /** Format: date-time */
            readonly checked_at: string | null;
            /** @description That was imported last; empty before the first look. */
            readonly commit: string;
            /** Format: date-time */
            readonly created_at: string;
            /** Format: uuid */
            readonly id: string;
            /** @description The adapter. */
            name: string;
            /** @description Why the last look failed. */
            readonly problem: components["schemas"]["Problem"] | null;
            /** @description hub:org/name@branch or hub:org/name/folder@branch */
            source: string;
        };
        /** @description A branch: whenever it moves, the adapter gets a new version. */
        HubFollowRequest: {
            /** @description The adapter. */
            name: string;
            /** @description hub:org/name@branch or hub:org/name/folder@branch */
            source: string;
        };
        /** @description A repository that a request named, and the state of its import. */
        HubModel: {
            adapter: string;
            name: string;
            /** Format: date-time */
            requested_at: string;
            state: string;
            /** Format: uuid */
            upload: string;
            version?: number | null;
        };
        /** @description The permission for requests to name repositories of the Hub as their model. */
        HubModels: {
            enabled: boolean;
            /** @description The latest. */
            readonly models: components["schemas"]["HubModel"][];
            /** @description Only of these; empty = of all. */
            organizations?: string[];
        };
        /** @description The permission for requests to name repositories of the Hub as their model. */
        HubModelsRequest: {
            enabled: boolean;
            /** @description Only of these; empty = of all. */
            organizations?: string[];
        };
        HubToken: {
            readonly set: boolean;
        };
        HubTokenRequest: {
            token: string;
        };
        /** @description A proof of identity: one of the three. The password counts only for people without a second factor. */
        IdentityConfirmationRequest: {
            /** @description A code of the authenticator app, or a recovery code. */
            code?: string;
            /** @description PublicKeyCredential.toJSON() of navigator.credentials.get. */
            credential?: {
                [key: string]: unknown;
            };
            password?: string;
        };
        Invitation: {
            /** Format: date-time */
            created_at: string;
            /** Format: email */
            email: string;
            /** Format: date-time */
            expires_at: string;
            /** Format: uuid */
            id: string;
            invited_by?: string | null;
            role: components["schemas"]["Role"];
        };
        /** @description An invitation as its recipient sees it before accepting. */
        InvitationDetails: {
            /** Format: email */
            email: string;
            /** Format: date-time */
            expires_at: string;
            /** @description Whether to sign in first, instead of choosing a password. */
            has_account: boolean;
            invited_by?: string | null;
            role: components["schemas"]["Role"];
            tenant: string;
            tenant_name: string;
        };
        InvitationTokenRequest: {
            token: string;
        };
        Joined: {
            /** @description PEM: who certifies the control plane. */
            authority: string;
            /** @description PEM. */
            certificate: string;
            /** Format: date-time */
            expires_at: string;
            name: string;
        };
        /** @description The membership of a host that joined, with a credential of its own. */
        JoinedHost: {
            /** Format: date-time */
            at: string;
            /** Format: date-time */
            certificate_expires_at: string | null;
            /** Format: date-time */
            revoked_at: string | null;
        };
        JoinRequest: {
            /** @description Where the control plane reaches the engine: host:port. */
            address: string;
            /** @description PKCS #10, PEM, of a key of P-256. */
            certificate_request: string;
            name: string;
            token: string;
            /** @description The version of the protocol between the control plane and engines that the engine speaks. By default 0. */
            wire_version?: number;
        };
        JoinToken: {
            /** Format: date-time */
            created_at: string;
            created_by: string;
            /** Format: date-time */
            expires_at: string;
            /** @description Empty: any new name. */
            host: string;
            /** Format: uuid */
            id: string;
            readonly state: string;
            /** @description The host that joined with it. */
            used_by?: string | null;
        };
        KeyBudgets: {
            day: components["schemas"]["BudgetState"] | null;
            /** Format: uuid */
            id: string;
            month: components["schemas"]["BudgetState"] | null;
            name: string;
            prefix: string;
        };
        /** @description The limits of one key. The tenant's limits apply as well. */
        KeyLimits: {
            /**
             * Format: int64
             * @description Choices that run at once, n for each prompt of a request. Null = no limit.
             */
            concurrency?: number | null;
            /**
             * Format: int64
             * @description Of one request, for each choice. Null = no limit.
             */
            max_output_tokens?: number | null;
            /**
             * Format: int64
             * @description Within any 60 seconds. Null = no limit.
             */
            requests_per_minute?: number | null;
            /**
             * Format: int64
             * @description By UTC day. Null = no limit.
             */
            tokens_per_day?: number | null;
            /**
             * Format: int64
             * @description Prompt and output, within any 60 seconds. Null = no limit.
             */
            tokens_per_minute?: number | null;
            /**
             * Format: int64
             * @description By UTC month. Null = no limit.
             */
            tokens_per_month?: number | null;
        };
        /** @description The limits of one key. The tenant's limits apply as well. */
        KeyLimitsRequest: {
            /**
             * Format: int64
             * @description Choices that run at once, n for each prompt of a request. Null = no limit.
             */
            concurrency?: number | null;
            /**
             * Format: int64
             * @description Of one request, for each choice. Null = no limit.
             */
            max_output_tokens?: number | null;
            /**
             * Format: int64
             * @description Within any 60 seconds. Null = no limit.
             */
            requests_per_minute?: number | null;
            /**
             * Format: int64
             * @description By UTC day. Null = no limit.
             */
            tokens_per_day?: number | null;
            /**
             * Format: int64
             * @description Prompt and output, within any 60 seconds. Null = no limit.
             */
            tokens_per_minute?: number | null;
            /**
             * Format: int64
             * @description By UTC month. Null = no limit.
             */
            tokens_per_month?: number | null;
        };
        /** @description The current usage. Null means not counted: nothing limits it, or the counters cannot be reached. */
        KeyLimitUsage: {
            concurrency: number | null;
            requests_per_minute: number | null;
            tokens_per_day: number;
            /** @description Running requests count with all they may use. */
            tokens_per_minute: number | null;
            tokens_per_month: number;
        };
        /**
         * @description * `adapters.write` - adapters.write
         *     * `infer` - infer
         *     * `view` - view
         * @enum {string}
         */
        KeyScope: "adapters.write" | "infer" | "view";
        KeyUsage: {
            cached_prompt_tokens: number;
            completion_tokens: number;
            /** @description Millionths of the currency, without storage. */
            cost_micros: number;
            /** @description Share of the devices' time, in microseconds. */
            device_us: number;
            /** @description Null = members in the console. */
            key: string | null;
            prefix: string | null;
            prompt_tokens: number;
            requests: number;
        };
        KeyUsageAgainstLimits: {
            /** Format: uuid */
            id: string;
            limits: components["schemas"]["KeyLimits"];
            name: string;
            prefix: string;
            used: components["schemas"]["KeyLimitUsage"];
        };
        /** @description The end of an engine that did not stop normally. */
        LastEnd: {
            /**
             * Format: date-time
             * @description Null where nobody knows.
             */
            at: string | null;
            reason: string;
        };
        Latency: {
            first_token: components["schemas"]["Percentiles"];
            inter_token: components["schemas"]["Percentiles"];
        };
        LatencyObjectives: {
            /** @description Time to the first token. Null = no objective. */
            first_token_ms?: number | null;
            /** @description Time between tokens, the mean of a request. Null = no objective. */
            inter_token_ms?: number | null;
            /**
             * Format: double
             * @description Share of requests that should meet each.
             * @default 0.99
             */
            target: number;
        };
        LatencyObjectivesRequest: {
            /** @description Time to the first token. Null = no objective. */
            first_token_ms?: number | null;
            /** @description Time between tokens, the mean of a request. Null = no objective. */
            inter_token_ms?: number | null;
            /**
             * Format: double
             * @description Share of requests that should meet each. By default 0.99.
             */
            target?: number;
        };
        LineError: {
            code: string;
            /** @description Line number in the file, from 1; 0 = the file as a whole. */
            line: number;
            message: string;
            param: string | null;
        };
        /** @description A base model that is served, was, or could be. */
        ListedBaseModel: {
            /** @description Of all tenants, with versions in use. */
            adapters: number;
            /** Format: date-time */
            decided_at: string | null;
            decided_by: string | null;
            digest: string;
            /** @description Active hosts that have it. */
            hosts: string[];
            /** @description Those that take its requests now. */
            hosts_online: number;
            /** @description Tokens; the least of its hosts. */
            max_context: number | null;
            /** @description What callers put into `model`. */
            name: string;
            /** @description Without a request for so long it needs no host; 0 = never. */
            sleeps_after_s: number;
            /**
             * @description `waiting`: hosts serve it, and no operator has approved it.
             *
             *     * `served` - served
             *     * `waiting` - waiting
             *     * `withdrawn` - withdrawn
             */
            state: components["schemas"]["BaseModelState"];
            /** @description Whether it is to have a host now. */
            wanted: boolean;
            /** Format: date-time */
            withdrawn_at: string | null;
        };
        LiveScore: {
            /** Format: double */
            score: number;
            version: number;
        };
        /**
         * @description * `to_device` - to_device
         *     * `from_disk` - from_disk
         *     * `download` - download
         * @enum {string}
         */
        LoadStep: "to_device" | "from_disk" | "download";
        /** @description The time to bring an adapter one tier nearer to the device on a host: a fixed part, and its bytes at a rate. */
        LoadTime: {
            bytes_per_second: number | null;
            /** Format: double */
            fixed_ms: number;
            /** @description Since the engine started; 0 = not known. */
            loads: number;
            /**
             * @description `to_device` from host memory, `from_disk` to host memory, `download` from the artifact store.
             *
             *     * `to_device` - to_device
             *     * `from_disk` - from_disk
             *     * `download` - download
             */
            step: components["schemas"]["LoadStep"];
        };
        LoginRequest: {
            /** Format: email */
            email: string;
            password: string;
        };
        Member: {
            /** @description False for an account made from an invitation, until its holder used a reset link or the provider. */
            address_proven: boolean;
            /** Format: email */
            email: string;
            /** Format: uuid */
            id: string;
            /** Format: date-time */
            joined_at: string;
            name: string;
            role: components["schemas"]["Role"];
            /** @description Whether they sign in with a second factor. */
            second_factor: boolean;
        };
        Methods: {
            /** @description Whether codes of an authenticator app are accepted. */
            app: boolean;
            /** @description Whether a passkey is accepted at this address. */
            passkey: boolean;
            /** @description Whether the password confirms: without a second factor. */
            password: boolean;
        };
        /** @description A name that can be used as `model`. */
        Model: {
            adapter: string | null;
            /** @description Further ids of the same adapter. */
            aliases: string[];
            /** @description On which it runs; itself for a base model. */
            base_model?: string | null;
            /** Format: date-time */
            created_at: string;
            description: string;
            id: string;
            kind: components["schemas"]["ModelKind"];
            version: number | null;
        };
        /**
         * @description * `base` - base
         *     * `adapter` - adapter
         * @enum {string}
         */
        ModelKind: "base" | "adapter";
        NewApiKeyRequest: {
            /** Format: date-time */
            expires_at?: string | null;
            name: string;
            /** @description Any of adapters.write, infer, view; all of them if left out. */
            scopes?: string[];
        };
        NewBaseModelRequest: {
            /** @description The base model that this host serves at the moment. */
            host: string;
            /** @description Adapters of the base model so far are right for this one: the same, saved anew. By default false. */
            keep_adapters?: boolean;
        };
        /** @description The multipart form of a new batch. */
        NewBatchRequest: {
            endpoint: components["schemas"]["BatchEndpoint"];
            /**
             * Format: binary
             * @description A JSON Lines file, as for POST /v1/files.
             */
            file: string;
            /**
             * Format: uuid
             * @description Id of the API key whose requests these are; an API key may name only itself.
             */
            key?: string;
        };
        /** @description An evaluation to start, of a version, or of the version that an upload becomes. */
        NewEvaluationRequest: {
            adapter?: string;
            /**
             * Format: uuid
             * @description The API key whose requests they are; for a key: always itself.
             */
            key?: string;
            set: string;
            /**
             * Format: uuid
             * @description Instead of adapter and version.
             */
            upload?: string;
            version?: number;
        };
        /** @description The multipart form of a new set. */
        NewEvaluationSetRequest: {
            /**
             * Format: binary
             * @description JSON lines of {"prompt" or "messages", "expected"}: all prompts, or all messages.
             */
            file: string;
            /** @description Of an answer; none for logprob. By default 64. */
            max_tokens?: number;
            /**
             * @description exact: the answer is the expected text, white space around either ignored; contains: the answer contains it; logprob: the mean natural log-probability of its tokens after the prompt. A score is the mean over all items.
             *
             *     * `exact` - Exact
             *     * `contains` - Contains
             *     * `logprob` - Logprob
             */
            metric: components["schemas"]["EvaluationMetric"];
            name: string;
        };
        /** @description The days of an export: `from` and `to`, or the last `days`. */
        NewExportRequest: {
            days?: number;
            /** Format: date */
            from?: string;
            grain?: components["schemas"]["Grain"];
            /** Format: date */
            to?: string;
        };
        NewExportScheduleRequest: {
            cadence: components["schemas"]["Cadence"];
            /** @description By default day. */
            grain?: components["schemas"]["Grain"];
        };
        NewImportRequest: {
            /** @description Name or digest of the base model that it was trained for. Needed only where several are served, the adapter is new, and its configuration names none of them. */
            base_model?: string;
            description?: string;
            /** @description The adapter; made if there is none. */
            name: string;
            /** @description hub:org/name or hub:org/name/folder@revision, s3://bucket/folder with credentials that the tenant keeps for the bucket, or the https address of a .zip, .tar or .tar.gz. */
            source: string;
        };
        NewInvitationRequest: {
            /** Format: email */
            email: string;
            role: components["schemas"]["Role"];
        };
        NewJoinTokenRequest: {
            /** @description Seconds for which it can be used. By default 3600. */
            expires_s?: number;
            /** @description The only name that it lets a machine join by, also if there is such a host: it takes that one's place. Left out, the machine says its name, and it must be a new one. */
            host?: string;
        };
        NewPasskeyRequest: {
            /** @description PublicKeyCredential.toJSON() of navigator.credentials.create. */
            credential: {
                [key: string]: unknown;
            };
            name: string;
        };
        /** @description A `prompt`, for completions, or `messages`, for chats, with which the requests begin that are to share it. */
        NewPrefixRequest: {
            /** @description Of the requests, if they have one. */
            cache_salt?: string;
            /** @description Of the requests, as in a chat. */
            chat_template_kwargs?: {
                [key: string]: unknown;
            };
            messages?: components["schemas"]["PrefixMessageRequest"][];
            /** @description An adapter's name, and so what is live, or a base model. */
            model: string;
            name: string;
            prompt?: string;
            /**
             * @description Of the requests.
             *
             *     * `none` - none
             *     * `minimal` - minimal
             *     * `low` - low
             *     * `medium` - medium
             *     * `high` - high
             *     * `xhigh` - xhigh
             *     * `max` - max
             */
            reasoning_effort?: components["schemas"]["ReasoningEffortEnum"];
            /** @description Of the requests, as in a chat. */
            tools?: {
                [key: string]: unknown;
            }[];
        };
        NewPricesRequest: {
            /** @description Of the base model that is to have this list of its own; null = the installation's list. */
            base_model_digest?: string | null;
            batch_cached_input_per_million?: number | null;
            /** @description Of batches; null = as of other requests. */
            batch_input_per_million?: number | null;
            batch_output_per_million?: number | null;
            /** @description Of those that were found in the prefix cache. */
            cached_input_per_million: number;
            /** @description ISO 4217, like USD. */
            currency: string;
            /**
             * Format: date
             * @description From midnight UTC on.
             */
            effective_on: string;
            /** @description Millionths of the currency for a million prompt tokens. */
            input_per_million: number;
            output_per_million: number;
            /** @description Of the installation's list, and only of that. */
            storage_per_gb_month?: number | null;
        };
        NewPromotionRuleRequest: {
            /**
             * Format: uuid
             * @description Whose requests evaluations are; for a key: always itself.
             */
            key?: string;
            /**
             * Format: double
             * @description Of the score.
             */
            minimum?: number | null;
            /** @description By default true. */
            not_worse_than_live?: boolean;
            set: string;
        };
        NewTenantRequest: {
            name: string;
            /**
             * Format: email
             * @description Is invited as the first owner.
             */
            owner: string;
            /** @description In addresses; it never changes. */
            slug: string;
        };
        /** @description The multipart form of a new upload. */
        NewUploadRequest: {
            /** @description Name or digest of the base model that it was trained for. Needed only where several are served, the adapter is new, and its configuration names none of them. */
            base_model?: string;
            description?: string;
            /** @description adapter_config.json and adapter_model.safetensors, or one .zip or .tar.gz that holds them. */
            files: string[];
            /** @description The adapter; made if there is none. */
            name: string;
            /** @description What `sha256sum` prints of the files: an upload that arrived otherwise is refused. */
            sha256?: string;
        };
        /** @enum {unknown} */
        NullEnum: null;
        /** @description An engine host by its last heartbeat, with every tenant's adapters. */
        OperatorHost: {
            /** @description Other hosts that read an adapter from this one now. */
            adapter_readers: number;
            adapters: components["schemas"]["OperatorResidentAdapter"][];
            /** @description `adapters` shows at most 256, the busiest first. */
            adapters_total: number;
            address: string;
            base_digest: string;
            boot_id: string;
            /**
             * Format: double
             * @description How far its clock is ahead of the database's; negative: behind; null while it does not answer.
             */
            clock_ahead_s?: number | null;
            device: string;
            /** @description The release of its engine, and the commit of the build. */
            engine_version?: string;
            /** @description Null of a host of the settings. */
            joined: components["schemas"]["JoinedHost"] | null;
            /** @description Why the engine before the one that runs ended; null if that was as it should be. */
            last_end?: components["schemas"]["LastEnd"] | null;
            /** Format: date-time */
            last_seen: string | null;
            load_times?: components["schemas"]["LoadTime"][];
            model: string;
            name: string;
            /** @description Versions that can be called on no other serving host. */
            only_here: number;
            /** @description One page over all layers. */
            page_bytes: number;
            pool: components["schemas"]["Pool"];
            /** @description Why it gets neither adapters nor requests; null if it does. */
            quarantine: components["schemas"]["Quarantine"] | null;
            restart?: components["schemas"]["RestartState"] | null;
            running: number;
            /**
             * @description What operators want of it. Cordoned and drained hosts get nothing new.
             *
             *     * `serving` - Serving
             *     * `cordoned` - Cordoned
             *     * `drained` - Drained
             */
            service: components["schemas"]["HostService"];
            /** @description The 100 tenants with the longest queues. */
            shares?: components["schemas"]["TenantShare"][];
            state: components["schemas"]["HostState"];
            /** Format: double */
            tokens_per_second: number;
            waiting: number;
            /** @description Where it says that it is (`--zone`). */
            zone: string;
        };
        OperatorReport: {
            /** Format: date-time */
            as_of: string | null;
            by_base_model: components["schemas"]["BaseModelUsage"][];
            by_day: components["schemas"]["DayUsage"][];
            /** @description Those with most device time, at most a hundred. */
            by_tenant: components["schemas"]["TenantUsage"][];
            currency: string | null;
            /** Format: date */
            first: string;
            /** Format: date */
            last: string;
            latency: components["schemas"]["Latency"];
            /** @description Of one base model: only those that an engine had. */
            outcomes: components["schemas"]["OutcomeCounts"];
            /** @description How many used anything. */
            tenants: number;
            top_adapters: components["schemas"]["TopAdapter"][];
            totals: components["schemas"]["UsageTotals"];
        };
        OperatorResidentAdapter: {
            bytes: number;
            /**
             * Format: double
             * @description How long a request would wait for it beside the queue, by what loads took here; null = not known.
             */
            cold_start_ms?: number | null;
            digest: string;
            rank: number;
            /** @description Requests using it now. */
            running: number;
            tier: components["schemas"]["AdapterTier"];
            /** @description Versions with this content; none if the host has yet to forget it. */
            used_by: components["schemas"]["AdapterReference"][];
        };
        /**
         * @description * `finished` - Finished
         *     * `aborted` - Aborted
         *     * `failed` - Failed
         *     * `refused` - Refused
         * @enum {string}
         */
        Outcome: "finished" | "aborted" | "failed" | "refused";
        OutcomeCounts: {
            aborted: number;
            failed: number;
            finished: number;
            refused: number;
        };
        /** @description The number of requests by their outcome in an engine. */
        Outcomes: {
            aborted: number;
            failed: number;
            finished: number;
            refused: number;
        };
        Overview: {
            adapters: components["schemas"]["AdapterCounts"];
            first_steps: components["schemas"]["FirstSteps"];
            hosts: components["schemas"]["Host"][];
            recent_requests: components["schemas"]["RequestRecord"][];
            requests_24h: number;
            tokens_24h: number;
        };
        OwnerInvitationRequest: {
            /** Format: email */
            email: string;
            role: components["schemas"]["Role"];
        };
        /**
         * @description * `free` - free
         *     * `kv` - kv
         *     * `cached_prefix` - cached_prefix
         *     * `adapter` - adapter
         *     * `reserved` - reserved
         *     * `state` - state
         *     * `others` - others
         * @enum {string}
         */
        PageKind: "free" | "kv" | "cached_prefix" | "adapter" | "reserved" | "state" | "others";
        PageOwner: {
            /** @description Every name of the adapter. */
            adapters: string[];
            /**
             * Format: double
             * @description Since the request came in, or the adapter was last used.
             */
            age_s: number | null;
            /**
             * @description `others`: of another tenant.
             *
             *     * `free` - free
             *     * `kv` - kv
             *     * `cached_prefix` - cached_prefix
             *     * `adapter` - adapter
             *     * `reserved` - reserved
             *     * `state` - state
             *     * `others` - others
             */
            kind: components["schemas"]["PageKind"];
            /** @description A pinned adapter's, or a pinned prefix's: it is not evicted. */
            pinned: boolean;
            /** @description For operators. */
            tenant: string | null;
        };
        Passkey: {
            /** Format: date-time */
            created_at: string;
            /** Format: uuid */
            id: string;
            /** Format: date-time */
            last_used_at: string | null;
            name: string;
        };
        /** @description A change of a base model: fields that are left out stay. */
        PatchedBaseModelChangeRequest: {
            name?: string;
            /** @description Without a request for so many seconds (60 or more) it needs no host; 0 = never. */
            sleeps_after_s?: number;
        };
        /** @description Changes of a key; a field that is left out keeps its value. */
        PatchedChangeApiKeyRequest: {
            /** Format: date-time */
            expires_at?: string | null;
            name?: string;
            scopes?: string[];
        };
        PatchedNewRoleRequest: {
            role?: components["schemas"]["Role"];
        };
        PatchedTenantNameRequest: {
            name?: string;
        };
        /** @description The percentiles of a latency in milliseconds; null if nothing was measured. */
        Percentiles: {
            /** Format: double */
            p50_ms: number | null;
            /** Format: double */
            p95_ms: number | null;
            /** Format: double */
            p99_ms: number | null;
        };
        /** @description The pin of an adapter's live version in the device memory of its hosts, and its size. */
        Pin: {
            /** @description Of each host's device memory; null: nothing is live. */
            bytes: number | null;
            /** @description Those that have the live version. */
            hosts: components["schemas"]["HostPin"][];
            /** @description What that may take; null or 0 = nothing may. */
            limit_bytes: number | null;
            /**
             * Format: date-time
             * @description Null = it is not pinned.
             */
            pinned_at: string | null;
            /** @description Of all that the tenant has pinned, on the host where it is most. */
            used_bytes: number;
        };
        PinnedAdapter: {
            /** @description Of each host's device memory; 0 = no host has a live version. */
            bytes: number;
            name: string;
            /** Format: date-time */
            pinned_at: string;
        };
        Placement: {
            attempts: number;
            bytes_done: number;
            bytes_total: number;
            /** @description In which the host serves it, such as fp8 or bfloat16; empty until it has said so. */
            dtype: string;
            dtype_report: components["schemas"]["DtypeReport"] | null;
            error: components["schemas"]["Problem"] | null;
            host: string;
            phase: components["schemas"]["StagingPhase"];
            /** Format: date-time */
            updated_at: string;
        };
        /** @description Pages; ``free + kv + state + cached_prefix + adapter + reserved == total``. */
        Pool: {
            adapter: number;
            cached_prefix: number;
            free: number;
            kv: number;
            reserved: number;
            state: number;
            total: number;
        };
        PreemptionSpan: {
            /** @description Since an engine had the request. */
            at_ms: number;
            /** @description Until it ran again. */
            ms: number;
        };
        /** @description A pinned prefix, and what the hosts that answer for its model do with it. */
        Prefix: {
            /** @description Of each host's device memory, where it is most. */
            bytes: number;
            cache_salt: string;
            /** @description None: nothing is live, or no host has it. */
            hosts: components["schemas"]["HostPrefix"][];
            /** @description Empty: a base model that is not served any more. */
            model: string;
            name: string;
            /** Format: date-time */
            pinned_at: string;
            /** @description That all longer prompts have; full pages of them are kept. */
            tokens: number;
        };
        /** @description The pinned text, as it was sent. */
        PrefixContent: {
            chat_template_kwargs?: {
                [key: string]: unknown;
            };
            messages?: components["schemas"]["PrefixMessage"][];
            prompt?: string;
            reasoning_effort?: string;
            tools?: {
                [key: string]: unknown;
            }[];
        };
        PrefixMessage: {
            content: string;
            role: components["schemas"]["PrefixMessageRoleEnum"];
        };
        PrefixMessageRequest: {
            content: string;
            role: components["schemas"]["PrefixMessageRoleEnum"];
        };
        /**
         * @description * `system` - system
         *     * `developer` - developer
         *     * `user` - user
         *     * `assistant` - assistant
         * @enum {string}
         */
        PrefixMessageRoleEnum: "system" | "developer" | "user" | "assistant";
        /** @description A pinned prefix, and what the hosts that answer for its model do with it. */
        PrefixText: {
            /** @description Of each host's device memory, where it is most. */
            bytes: number;
            cache_salt: string;
            content: components["schemas"]["PrefixContent"];
            /** @description None: nothing is live, or no host has it. */
            hosts: components["schemas"]["HostPrefix"][];
            /** @description Empty: a base model that is not served any more. */
            model: string;
            name: string;
            /** Format: date-time */
            pinned_at: string;
            /** @description That all longer prompts have; full pages of them are kept. */
            tokens: number;
        };
        /**
         * @description A version of one list. Of requests the base model's own list counts, if it has one on their day, or else the
         *     installation's.
         */
        PriceVersion: {
            /** @description Whose list it is, by its name now; null = the installation's. */
            base_model?: string | null;
            base_model_digest?: string | null;
            batch_cached_input_per_million?: number | null;
            /** @description Of batches; null = as of other requests. */
            batch_input_per_million?: number | null;
            batch_output_per_million?: number | null;
            cached_input_per_million: number;
            /** Format: date-time */
            created_at: string;
            created_by?: string | null;
            currency: string;
            /**
             * Format: date
             * @description From midnight UTC on.
             */
            effective_on: string;
            /** @description The base model has no list of its own from this day on; every amount is 0. */
            inherits: boolean;
            input_per_million: number;
            number: number;
            output_per_million: number;
            /** @description Null in a base model's list. */
            readonly storage_per_gb_month: number | null;
        };
        /** @description A prompt, continued by the base model and with the version. Changes are of log-probabilities. */
        ProbedPrompt: {
            adapter_tokens: string[];
            base_tokens: string[];
            /** @description Whether the model's numbers stayed finite with the version. */
            finite: boolean;
            /** Format: double */
            largest_change: number;
            /** Format: double */
            mean_change: number;
            prompt: string;
        };
        /** @description An error that is stored with a resource: why an upload was refused, why a staging failed. */
        Problem: {
            code: string;
            fix: string;
            message: string;
        };
        ProfileRequest: {
            /** @description Shown to other members. */
            name: string;
        };
        /** @description The score that a version must reach before it becomes live, or a canary of it. */
        PromotionRule: {
            /**
             * Format: uuid
             * @description The API key whose requests those are.
             */
            key: string;
            /** Format: double */
            minimum: number | null;
            not_worse_than_live: boolean;
            /** @description The evaluation set; new versions are evaluated with it by themselves. */
            set: string;
        };
        /** @description The agreement on one prompt, with the tokens that the unquantised model chooses after the same text. */
        PromptAgreement: {
            adapter: components["schemas"]["AgreementFigures"];
            adapter_tokens: string[];
            base: components["schemas"]["AgreementFigures"];
            base_tokens: string[];
        };
        Quarantine: {
            code: components["schemas"]["QuarantineCode"];
            fix: string;
            message: string;
        };
        /**
         * @description * `other_base_model` - other_base_model
         *     * `other_tokenizer` - other_tokenizer
         *     * `base_model_undecided` - base_model_undecided
         *     * `unsupported_engine` - unsupported_engine
         *     * `revoked` - revoked
         * @enum {string}
         */
        QuarantineCode: "other_base_model" | "other_tokenizer" | "base_model_undecided" | "unsupported_engine" | "revoked";
        /**
         * @description * `none` - none
         *     * `minimal` - minimal
         *     * `low` - low
         *     * `medium` - medium
         *     * `high` - high
         *     * `xhigh` - xhigh
         *     * `max` - max
         * @enum {string}
         */
        ReasoningEffortEnum: "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "max";
        /** @description The usage of the last `days` (UTC). */
        RecentUsage: {
            days: number;
            failed: number;
            refused: number;
            /** @description However they ended, also those that no engine had. */
            requests: number;
            tokens: number;
        };
        /** @description The recording setting: whether prompts and answers are stored with the requests, and for how long. */
        Recording: {
            /** @description Days after which each text is deleted. */
            days: number;
            enabled: boolean;
        };
        /** @description The recording setting: whether prompts and answers are stored with the requests, and for how long. */
        RecordingRequest: {
            /** @description Days after which each text is deleted. */
            days: number;
            enabled: boolean;
        };
        RecoveryCodes: {
            /** @description Shown this once. Empty unless this was the first second factor. */
            recovery_codes: string[];
        };
        /** @description Refusals of one kind within one minute. */
        Refusal: {
            code: string;
            count: number;
            endpoint: components["schemas"]["ApiEndpoint"];
            id: number;
            /** @description Null = the console. */
            key?: string | null;
            /** Format: date-time */
            last_at: string;
            /** @description Which limit, if it was one. */
            limit: string;
            /** Format: date-time */
            minute: string;
            /** @description Asked for by the last of them. */
            model: string;
            /** @description At fault in the last of them. */
            param: string;
            /** @description Of HTTP. */
            status: number;
        };
        RefusalPage: {
            /** @description `cursor` of the next page; null at the end. */
            next_cursor: string | null;
            results: components["schemas"]["Refusal"][];
        };
        RefusalsByCode: {
            by_step: number[];
            /** @description `others`: what is beyond the 20 most frequent. */
            code: string;
            count: number;
            /** @description Of HTTP; 0 of `others`. */
            status: number;
        };
        /** @description Requests that reached no engine, over time. They are a few seconds late. */
        RefusalSeries: {
            by_code: components["schemas"]["RefusalsByCode"][];
            /** @description Of these, the ones that were the platform's fault: 5xx. */
            failed: number;
            /** Format: date-time */
            since: string;
            /** @description When each step begins. */
            starts: string[];
            step_s: number;
            total: number;
            /**
             * Format: date-time
             * @description Everything before it is counted; the last step may not be over.
             */
            until: string;
        };
        RequestCounts: {
            completed: number;
            failed: number;
            /** @description 0 until every line has been checked. */
            total: number;
        };
        RequestPage: {
            /**
             * Format: date
             * @description On the last page: requests of months before this day are archived; reports and exports still count them. Null if none are.
             */
            archived_before?: string | null;
            /** @description `cursor` of the next page; null at the end. */
            next_cursor: string | null;
            results: components["schemas"]["RequestRecord"][];
        };
        /** @description A request of the ledger. Neither prompt nor output is kept. */
        RequestRecord: {
            /** @description Completion tokens that were drafted, each of which saved a step. */
            accepted_tokens: number;
            adapter?: string | null;
            adapter_load_ms: number;
            /** @description The tier that its adapter was loaded from meanwhile: "disk" or "host". */
            adapter_loaded_from: string;
            /** @description Finding the key, the adapter and its hosts. */
            auth_ms: number;
            /** @description On which it ran, by its name now; null of several adapters as one, of before it was written down. */
            readonly base_model: string | null;
            /** @description A line of a batch. */
            batch: boolean;
            cached_prompt_tokens: number;
            completion_tokens: number;
            /** @description Millionths of the currency; null = no prices. */
            cost_micros: number | null;
            /** Format: date-time */
            created_at: string;
            currency: string | null;
            decode_ms: number;
            /** @description Drafts of speculation that were computed; no tokens of the answer, never billed. */
            drafted_tokens: number;
            endpoint: components["schemas"]["ApiEndpoint"];
            error_code: string;
            /** @description Of its choices, by commas: "stop", "length", "tool_calls"; empty if unknown. */
            finish_reason: string;
            first_token_ms: number;
            host: string;
            id: string;
            /** @description The first 16 fields of the request that were left out, as in its header X-Lorikeet-Ignored. */
            readonly ignored: string[];
            /** @description Null = the console. */
            key?: string | null;
            /** @description As the client wrote it. */
            model: string;
            outcome: components["schemas"]["Outcome"];
            /** @description How long it was out of the batch, over all its choices. */
            preempted_ms: number;
            /** @description The first 16. */
            readonly preemption_spans: components["schemas"]["PreemptionSpan"][];
            /** @description How often it was taken out of the batch for others. */
            preemptions: number;
            prefill_ms: number;
            prompt_tokens: number;
            queue_ms: number;
            /** @description Checking limits and budgets. */
            quota_ms: number;
            /** @description The first 8 keywords of the request's schema that the answer violates, by their paths. */
            readonly schema_violations: string[];
            streamed: boolean;
            version?: number | null;
        };
        RequirementRequest: {
            /** @description Members without a second factor can do nothing but set one up. API keys are not affected. */
            second_factor_required: boolean;
        };
        ResetPasswordRequest: {
            password: string;
            token: string;
        };
        /** @description An adapter of the tenant on a host. */
        ResidentAdapter: {
            bytes: number;
            /**
             * Format: double
             * @description How long a request would wait for it beside the queue, by what loads took here; null = not known.
             */
            cold_start_ms?: number | null;
            digest: string;
            /** @description The newest of `names`. */
            name: string;
            /** @description Every version with this content. */
            names?: string[];
            rank: number;
            /** @description Requests using it now. */
            running: number;
            tier: components["schemas"]["AdapterTier"];
        };
        Restart: {
            /**
             * @description So long requests that run there may go on. Asked again, the last word holds.
             * @default 300
             */
            wait_s: number;
        };
        /**
         * @description * `asked` - asked
         *     * `ending` - ending
         *     * `starting` - starting
         * @enum {string}
         */
        RestartPhase: "asked" | "ending" | "starting";
        RestartRequest: {
            /** @description So long requests that run there may go on. Asked again, the last word holds. By default 300. */
            wait_s?: number;
        };
        /** @description A restart that operators asked for and that is not done. */
        RestartState: {
            /** Format: date-time */
            asked_at: string;
            /**
             * @description `asked`: its engine was not told yet. `ending`: it waits for its requests. `starting`: it ended.
             *
             *     * `asked` - asked
             *     * `ending` - ending
             *     * `starting` - starting
             */
            phase: components["schemas"]["RestartPhase"];
            wait_s: number;
        };
        /**
         * @description * `owner` - Owner
         *     * `admin` - Admin
         *     * `developer` - Developer
         *     * `viewer` - Viewer
         * @enum {string}
         */
        Role: "owner" | "admin" | "developer" | "viewer";
        RotateApiKeyRequest: {
            /** @description Seconds for which the old secret is still accepted. By default 86400. */
            grace_s?: number;
        };
        /** @description A version's score on an evaluation set, with those of the base model and the live version of that time. */
        Score: {
            /** Format: date-time */
            at: string;
            /** Format: double */
            base: number;
            /** Format: uuid */
            evaluation: string;
            items: number;
            /** @description Null where nothing was live, or this version. */
            live: components["schemas"]["LiveScore"] | null;
            metric: components["schemas"]["EvaluationMetric"];
            /**
             * Format: double
             * @description Of the version: the mean over all items; more is better.
             */
            score: number;
            set: string;
            /** @description Items that the version answered worst, five at most. */
            worst: components["schemas"]["AnsweredItem"][];
        };
        /** @description A proof of the second factor: one of the two. */
        SecondFactorRequest: {
            /** @description A code of the authenticator app, or a recovery code. */
            code?: string;
            /** @description PublicKeyCredential.toJSON() of navigator.credentials.get. */
            credential?: {
                [key: string]: unknown;
            };
        };
        /** @description The second factors of the calling person. */
        SecondFactors: {
            /** @description The authenticator app, if one is set up. */
            app: components["schemas"]["App"] | null;
            /** @description Whether changes are accepted without POST /api/session/confirmation first. */
            confirmed: boolean;
            passkeys: components["schemas"]["Passkey"][];
            /** @description False where browsers offer no passkeys: without a host name or HTTPS. */
            passkeys_available: boolean;
            /** @description Unused recovery codes. */
            recovery_codes_left: number;
            /** @description Names of the person's tenants that require a second factor. */
            required_by: string[];
        };
        Security: {
            /** @description Members that have no second factor. */
            members_without: number;
            /** @description Members without a second factor can do nothing but set one up. API keys are not affected. */
            second_factor_required: boolean;
        };
        SeriesPart: {
            /** @description Completion tokens that were drafted, each of which saved a step. */
            accepted_tokens: number;
            cached_prompt_tokens: number;
            completion_tokens: number;
            /** @description Millionths of the currency, without storage. */
            cost_micros: number;
            /** @description Share of the devices' time, in microseconds. */
            device_us: number;
            /** @description Of the ten parts with most device time; empty for others, and for adapters. */
            device_us_by_step: number[];
            /** @description Drafts of speculation that were computed; no tokens of the answer, never billed. */
            drafted_tokens: number;
            /** @description Of answered requests, without batches. */
            latency: components["schemas"]["Latency"];
            /** Format: double */
            mean_adapter_load_ms: number | null;
            /** Format: double */
            mean_queue_ms: number | null;
            /** @description Null = the base model, or members in the console. */
            name?: string | null;
            outcomes: components["schemas"]["Outcomes"];
            /** @description Of a key. */
            prefix?: string | null;
            prompt_tokens: number;
            requests: number;
            /** @description Of the ten parts with most device time; empty for others, and for adapters. */
            requests_by_step: number[];
            tenant?: string | null;
            version?: number | null;
            /**
             * Format: double
             * @description Of a tenant, as it is now.
             */
            weight?: number;
        };
        SeriesPoint: {
            /** @description Completion tokens that were drafted, each of which saved a step. */
            accepted_tokens: number;
            /**
             * Format: date-time
             * @description Where the step begins; of the first and the last one only what lies in the window is counted.
             */
            at: string;
            cached_prompt_tokens: number;
            completion_tokens: number;
            /** @description Millionths of the currency, without storage. */
            cost_micros: number;
            /** @description Share of the devices' time, in microseconds. */
            device_us: number;
            /** @description Drafts of speculation that were computed; no tokens of the answer, never billed. */
            drafted_tokens: number;
            /** @description Of answered requests, without batches. */
            latency: components["schemas"]["Latency"];
            /** Format: double */
            mean_adapter_load_ms: number | null;
            /** Format: double */
            mean_queue_ms: number | null;
            outcomes: components["schemas"]["Outcomes"];
            prompt_tokens: number;
            requests: number;
        };
        /** @description A report over time. Minutes are kept for two days, hours for ninety. Each part lists at most a hundred rows. */
        SeriesReport: {
            /** Format: date-time */
            as_of: string | null;
            /** @description Of a tenant; without latencies, which `adapter` asks for. */
            by_adapter: components["schemas"]["SeriesPart"][];
            /** @description Null = requests of before it was written down; empty of an adapter. */
            by_base_model: components["schemas"]["SeriesPart"][];
            /** @description Of a tenant, or of all. */
            by_host: components["schemas"]["SeriesPart"][];
            /** @description Of a tenant; without latencies. */
            by_key: components["schemas"]["SeriesPart"][];
            /** @description For operators. */
            by_tenant: components["schemas"]["SeriesPart"][];
            /** @description Of an adapter. */
            by_version: components["schemas"]["SeriesPart"][];
            currency: string | null;
            points: components["schemas"]["SeriesPoint"][];
            /** Format: date-time */
            since: string;
            step_s: number;
            totals: components["schemas"]["SeriesTotals"];
            /**
             * Format: date-time
             * @description Everything before it is counted; the last step may not be over.
             */
            until: string;
        };
        SeriesTotals: {
            /** @description Completion tokens that were drafted, each of which saved a step. */
            accepted_tokens: number;
            cached_prompt_tokens: number;
            completion_tokens: number;
            /** @description Millionths of the currency, without storage. */
            cost_micros: number;
            /** @description Share of the devices' time, in microseconds. */
            device_us: number;
            /** @description Drafts of speculation that were computed; no tokens of the answer, never billed. */
            drafted_tokens: number;
            /** @description Of answered requests, without batches. */
            latency: components["schemas"]["Latency"];
            /** Format: double */
            mean_adapter_load_ms: number | null;
            /** Format: double */
            mean_queue_ms: number | null;
            outcomes: components["schemas"]["Outcomes"];
            prompt_tokens: number;
            requests: number;
        };
        ServerVersion: {
            /** @description The release and the commit, such as 0.1.0+gf66acf9d. */
            version: string;
        };
        /** @description The gap in service between two tenants that waited and could have run: the widest of all pairs. */
        ServiceGap: {
            /** @description A tenant's slug. */
            ahead: string;
            behind: string;
            /**
             * Format: double
             * @description What the fair order keeps it below, over any time in which both wait.
             */
            bound: number;
            /**
             * Format: double
             * @description Priced tokens per weight that the one has had more than the other.
             */
            gap: number;
            /**
             * Format: double
             * @description gap / bound.
             */
            share: number;
        };
        ServiceGapPoint: {
            /**
             * Format: date-time
             * @description When the step begins.
             */
            at: string;
            /** @description The nearest to its bound, of all heartbeats; null = no two tenants waited. */
            widest: components["schemas"]["ServiceGap"] | null;
        };
        Session: {
            authenticated: boolean;
            /** @description Send as X-CSRFToken with every POST, PUT, PATCH and DELETE. */
            csrf_token: string;
            /** @description Whether one can sign in with a password here. */
            password_login: boolean;
            /** @description Name of the provider to sign in with, if any. */
            provider: string | null;
            /** @description Address of the person whose sign-in waits for its second factor, if any. */
            second_factor_for: string | null;
            /** @description Whether a mail server is set up, so that links reach people. */
            sends_mail: boolean;
            /** @description Why the last sign-in by provider failed. Told once. */
            sign_in_error: components["schemas"]["SignInError"] | null;
            tenants: components["schemas"]["SessionTenant"][];
            user: components["schemas"]["SessionUser"] | null;
        };
        SessionTenant: {
            capabilities: components["schemas"]["Capability"][];
            name: string;
            role: components["schemas"]["Role"];
            /** @description Whether members need a second factor; without one they have no capabilities here. */
            second_factor_required: boolean;
            slug: string;
            /**
             * Format: date-time
             * @description Since then the tenant's keys are refused and its members only read.
             */
            suspended_at: string | null;
            /** @description Why, as the operator wrote it. */
            suspended_for: string;
        };
        SessionUser: {
            /** Format: email */
            email: string;
            /** @description Else they come in by provider. */
            has_password: boolean;
            /** Format: uuid */
            id: string;
            is_operator: boolean;
            name: string;
            /** @description Whether they sign in with a second factor. */
            second_factor: boolean;
        };
        /** @description A tenant's share of an engine, as the engine last reported it. */
        Share: {
            /**
             * Format: double
             * @description Its weight's share among the tenants in the engine now.
             */
            owed: number;
            /** @description Why its next request waits: `adapter_loading`, `no_room`, `background`, `tenant_cap`, `own_queue`, `own_quota`, `batch_full`, `queue`. */
            reason: string;
            /**
             * Format: double
             * @description Its share of the service of the last 10 to 20 seconds.
             */
            received: number;
            running: number;
            waiting: number;
            /** Format: double */
            weight: number;
        };
        SignInError: {
            code: string;
            fix: string;
            message: string;
        };
        SloReport: {
            /** Format: date-time */
            as_of: string | null;
            days: number;
            /** @description Requests that broke off or brought nothing. */
            failed: number;
            first_token: components["schemas"]["Attainment"];
            /** @description Time to the first token. Null = no objective. */
            first_token_ms?: number | null;
            inter_token: components["schemas"]["Attainment"];
            /** @description Time between tokens, the mean of a request. Null = no objective. */
            inter_token_ms?: number | null;
            /** Format: double */
            mean_queue_ms: number | null;
            requests: number;
            /**
             * Format: double
             * @description Share of requests that should meet each.
             * @default 0.99
             */
            target: number;
            /**
             * Format: double
             * @description Share of the hosts when they are full, beside other tenants' weights.
             */
            weight: number;
        };
        SocketTicket: {
            /** @description Seconds. */
            expires_in: number;
            /** @description Good once. */
            ticket: string;
        };
        StagingPage: {
            /** @description How many placements are in which. */
            phases: {
                [key: string]: number;
            };
            results: components["schemas"]["StagingRow"][];
            total: number;
        };
        /**
         * @description * `queued` - Queued
         *     * `downloading` - Downloading
         *     * `verifying` - Verifying
         *     * `loading` - Loading
         *     * `ready` - Ready
         *     * `failed` - Failed
         * @enum {string}
         */
        StagingPhase: "queued" | "downloading" | "verifying" | "loading" | "ready" | "failed";
        StagingRow: {
            adapter: string;
            /** @description Since it was queued. */
            attempts: number;
            bytes_done: number;
            /** @description 0 = not moving. */
            bytes_per_second: number;
            bytes_total: number;
            /** @description Of the last attempt that failed. */
            error: components["schemas"]["Problem"] | null;
            /** @description In a row, each after all attempts. */
            failures: number;
            host: string;
            /** Format: uuid */
            id: string;
            /** Format: date-time */
            next_attempt_at: string | null;
            phase: components["schemas"]["StagingPhase"];
            /**
             * Format: double
             * @description At that rate; null = not moving.
             */
            remaining_s: number | null;
            tenant: string;
            /** Format: date-time */
            updated_at: string;
            version: number;
            /**
             * @description Why nothing happens with it now; null if something does.
             *
             *     * `slot` - slot
             *     * `host_offline` - host_offline
             *     * `host_cordoned` - host_cordoned
             *     * `retry` - retry
             */
            waits_for: (components["schemas"]["StagingWait"] | components["schemas"]["NullEnum"]) | null;
        };
        /**
         * @description * `slot` - slot
         *     * `host_offline` - host_offline
         *     * `host_cordoned` - host_cordoned
         *     * `retry` - retry
         * @enum {string}
         */
        StagingWait: "slot" | "host_offline" | "host_cordoned" | "retry";
        /** @description A statement of a month. Amounts are millionths of the currency. */
        Statement: {
            /** Format: date-time */
            as_of: string | null;
            /** @description The month is over. */
            complete: boolean;
            /** @description Null = there were no prices. */
            currency: string | null;
            lines: components["schemas"]["StatementLine"][];
            month: string;
            total_micros: number;
        };
        StatementLine: {
            amount_micros: number;
            /** @description Which has these prices of its own, by its name now; null = all that have none. */
            base_model: string | null;
            /** Format: date */
            first: string;
            kind: components["schemas"]["StatementLineKind"];
            /** Format: date */
            last: string;
            price_version: number;
            /** @description Tokens; for storage, bytes x hours. */
            quantity: number;
            /** @description For a million tokens; for storage, a month of 10^9 bytes. */
            unit_price_micros: number;
        };
        /**
         * @description * `input` - input
         *     * `cached_input` - cached_input
         *     * `output` - output
         *     * `batch_input` - batch_input
         *     * `batch_cached_input` - batch_cached_input
         *     * `batch_output` - batch_output
         *     * `storage` - storage
         * @enum {string}
         */
        StatementLineKind: "input" | "cached_input" | "output" | "batch_input" | "batch_cached_input" | "batch_output" | "storage";
        /** @description A tenant's storage. Content shared by several versions counts once, but for each adapter in the list. */
        Storage: {
            /** @description How many there are. */
            adapter_count: number;
            /** @description Those that take most. */
            adapters: components["schemas"]["AdapterStorage"][];
            /** @description Of versions that are archived and can be restored. */
            archived_bytes: number;
            /** @description Of versions in use: what counts against the limit. */
            bytes: number;
            limit_bytes: number | null;
        };
        StoredFile: {
            bytes: number;
            /** Format: date-time */
            created_at: string;
            /**
             * Format: date-time
             * @description The file is deleted at this time.
             */
            expires_at: string;
            /** @description The file's id in /v1/files. */
            id: string;
            name: string;
            purpose: components["schemas"]["FilePurpose"];
        };
        SuspensionRequest: {
            /** @description Its members and callers are told. */
            reason: string;
        };
        Tenant: {
            /** Format: date-time */
            created_at: string;
            /** Format: date-time */
            deleted_at: string | null;
            name: string;
            slug: string;
            state: components["schemas"]["TenantState"];
            /** Format: date-time */
            suspended_at: string | null;
            suspended_for: string;
            /** Format: double */
            weight: number;
        };
        TenantAdapter: {
            bytes: number;
            /** Format: date-time */
            created_at: string;
            name: string;
            rank: number | null;
            state: (components["schemas"]["VersionState"] | components["schemas"]["NullEnum"]) | null;
            /** @description The newest. */
            version: number | null;
        };
        TenantAdapterPage: {
            results: components["schemas"]["TenantAdapter"][];
            total: number;
        };
        TenantDetail: {
            /** @description That are not archived. */
            adapters: number;
            /** Format: date-time */
            created_at: string;
            /** Format: date-time */
            deleted_at: string | null;
            /** @description How many are open. */
            invitation_count: number;
            /** @description The newest that are open. */
            invitations: components["schemas"]["Invitation"][];
            /** @description That are not revoked. */
            keys: number;
            members: number;
            name: string;
            objectives: components["schemas"]["LatencyObjectives"];
            slug: string;
            state: components["schemas"]["TenantState"];
            /** Format: date-time */
            suspended_at: string | null;
            suspended_for: string;
            usage: components["schemas"]["RecentUsage"];
            /** @description How many are in which state. */
            versions: {
                [key: string]: number;
            };
            /** Format: double */
            weight: number;
        };
        /** @description The limits of one key. The tenant's limits apply as well. */
        TenantLimits: {
            /**
             * Format: int64
             * @description Adapters that are not archived. Null = no limit.
             */
            adapters?: number | null;
            /**
             * Format: int64
             * @description Choices that run at once, n for each prompt of a request. Null = no limit.
             */
            concurrency?: number | null;
            /**
             * Format: int64
             * @description Of one request, for each choice. Null = no limit.
             */
            max_output_tokens?: number | null;
            /**
             * Format: int64
             * @description Of an adapter's largest module. Null = no limit.
             */
            max_rank?: number | null;
            /**
             * Format: int64
             * @description Device memory of each host for pinned adapters. Null = none may be pinned.
             */
            pinned_bytes?: number | null;
            /**
             * Format: int64
             * @description Within any 60 seconds. Null = no limit.
             */
            requests_per_minute?: number | null;
            /**
             * Format: int64
             * @description Content of versions that are not archived. Null = no limit.
             */
            storage_bytes?: number | null;
            /**
             * Format: int64
             * @description By UTC day. Null = no limit.
             */
            tokens_per_day?: number | null;
            /**
             * Format: int64
             * @description Prompt and output, within any 60 seconds. Null = no limit.
             */
            tokens_per_minute?: number | null;
            /**
             * Format: int64
             * @description By UTC month. Null = no limit.
             */
            tokens_per_month?: number | null;
        };
        /** @description The limits of one key. The tenant's limits apply as well. */
        TenantLimitsRequest: {
            /**
             * Format: int64
             * @description Adapters that are not archived. Null = no limit.
             */
            adapters?: number | null;
            /**
             * Format: int64
             * @description Choices that run at once, n for each prompt of a request. Null = no limit.
             */
            concurrency?: number | null;
            /**
             * Format: int64
             * @description Of one request, for each choice. Null = no limit.
             */
            max_output_tokens?: number | null;
            /**
             * Format: int64
             * @description Of an adapter's largest module. Null = no limit.
             */
            max_rank?: number | null;
            /**
             * Format: int64
             * @description Device memory of each host for pinned adapters. Null = none may be pinned.
             */
            pinned_bytes?: number | null;
            /**
             * Format: int64
             * @description Within any 60 seconds. Null = no limit.
             */
            requests_per_minute?: number | null;
            /**
             * Format: int64
             * @description Content of versions that are not archived. Null = no limit.
             */
            storage_bytes?: number | null;
            /**
             * Format: int64
             * @description By UTC day. Null = no limit.
             */
            tokens_per_day?: number | null;
            /**
             * Format: int64
             * @description Prompt and output, within any 60 seconds. Null = no limit.
             */
            tokens_per_minute?: number | null;
            /**
             * Format: int64
             * @description By UTC month. Null = no limit.
             */
            tokens_per_month?: number | null;
        };
        /** @description The current usage. Null means not counted: nothing limits it, or the counters cannot be reached. */
        TenantLimitUsage: {
            adapters: number;
            concurrency: number | null;
            requests_per_minute: number | null;
            storage_bytes: number;
            tokens_per_day: number;
            /** @description Running requests count with all they may use. */
            tokens_per_minute: number | null;
            tokens_per_month: number;
        };
        TenantMemberPage: {
            results: components["schemas"]["Member"][];
            total: number;
        };
        TenantPage: {
            results: components["schemas"]["TenantRow"][];
            total: number;
        };
        /** @description The adapters and prefixes that a tenant keeps in device memory. */
        TenantPins: {
            adapters: components["schemas"]["PinnedAdapter"][];
            /** @description What it may take; null or 0 = nothing may. */
            limit_bytes: number | null;
            prefixes: components["schemas"]["Prefix"][];
            /** @description Of each host, where it is most. */
            used_bytes: number;
        };
        TenantRow: {
            /** @description That are not archived. */
            adapters: number;
            /** Format: date-time */
            created_at: string;
            /** Format: date-time */
            deleted_at: string | null;
            /** @description That are not revoked. */
            keys: number;
            members: number;
            name: string;
            slug: string;
            state: components["schemas"]["TenantState"];
            /** Format: date-time */
            suspended_at: string | null;
            suspended_for: string;
            usage: components["schemas"]["RecentUsage"];
            /** Format: double */
            weight: number;
        };
        /** @description A tenant's share of an engine, as the engine last reported it. */
        TenantShare: {
            /**
             * Format: double
             * @description Priced tokens per weight that it has had more than the tenant here that has had least.
             */
            ahead: number;
            name: string;
            /**
             * Format: double
             * @description Its weight's share among the tenants in the engine now.
             */
            owed: number;
            /** @description Why its next request waits: `adapter_loading`, `no_room`, `background`, `tenant_cap`, `own_queue`, `own_quota`, `batch_full`, `queue`. */
            reason: string;
            /**
             * Format: double
             * @description Its share of the service of the last 10 to 20 seconds.
             */
            received: number;
            running: number;
            tenant: string;
            waiting: number;
            /** Format: double */
            weight: number;
        };
        /**
         * @description * `active` - active
         *     * `suspended` - suspended
         *     * `deleted` - deleted
         * @enum {string}
         */
        TenantState: "active" | "suspended" | "deleted";
        TenantUsage: {
            cached_prompt_tokens: number;
            completion_tokens: number;
            /** @description Millionths of the currency, without storage. */
            cost_micros: number;
            /**
             * Format: double
             * @description Of the devices' time in this span, 0 to 1.
             */
            device_share: number;
            /** @description Share of the devices' time, in microseconds. */
            device_us: number;
            failed: number;
            latency: components["schemas"]["Latency"];
            name: string;
            prompt_tokens: number;
            /** @description By an engine, or before any engine had them. */
            refused: number;
            requests: number;
            tenant: string;
        };
        TenantUsageAgainstLimits: {
            limits: components["schemas"]["TenantLimits"];
            used: components["schemas"]["TenantLimitUsage"];
        };
        TenantWeight: {
            /** Format: double */
            weight: number;
        };
        TenantWeightRequest: {
            /** Format: double */
            weight: number;
        };
        TopAdapter: {
            /** @description Null = the base model. */
            adapter: string | null;
            cached_prompt_tokens: number;
            completion_tokens: number;
            /** @description Millionths of the currency, without storage. */
            cost_micros: number;
            /** Format: double */
            device_share: number;
            /** @description Share of the devices' time, in microseconds. */
            device_us: number;
            prompt_tokens: number;
            requests: number;
            tenant: string;
        };
        Transcript: {
            /** @description One for each choice. */
            answers: string[];
            /** @description Whether the text was cut because of its length. */
            cut: boolean;
            prompt: components["schemas"]["TranscriptMessage"][];
            /** @description Parameters of the request: sampling, `response_format`, `tools`. Null if they were too long to store, or the request is older than this field. */
            settings: {
                [key: string]: unknown;
            } | null;
        };
        TranscriptMessage: {
            content: string;
            /** @description The role in the request; "text" or "token_ids" for a prompt without roles. */
            role: string;
        };
        Upload: {
            adapter: string;
            bytes: number;
            /** Format: date-time */
            created_at: string;
            created_by?: string | null;
            description: string;
            /** @description Return the bytes fetched so far of an import in progress; null for every other upload. */
            readonly fetched_bytes: number | null;
            files: components["schemas"]["UploadedFile"][];
            /** Format: uuid */
            id: string;
            imported_from: components["schemas"]["UploadSource"] | null;
            /** @description Why it waits, was refused, or made no new version. */
            reason: components["schemas"]["Problem"] | null;
            report: components["schemas"]["ValidationReport"] | null;
            reused_version: boolean;
            state: components["schemas"]["UploadState"];
            /** Format: date-time */
            updated_at: string;
            version?: number | null;
        };
        UploadedFile: {
            bytes: number;
            name: string;
            /** @description What its sender announced, in hex. */
            sha256?: string | null;
        };
        /** @description The source of an import; for a URL without its query, and never with a token. */
        UploadSource: {
            /** @description What the revision meant when it began. */
            commit?: string | null;
            name: string;
            revision: string | null;
        };
        /**
         * @description * `arriving` - Arriving
         *     * `received` - Received
         *     * `validating` - Validating
         *     * `refused` - Refused
         *     * `accepted` - Accepted
         *     * `cancelled` - Cancelled
         * @enum {string}
         */
        UploadState: "arriving" | "received" | "validating" | "refused" | "accepted" | "cancelled";
        UsageAgainstLimits: {
            counters_reachable: boolean;
            /** @description Keys that can be used. */
            keys: components["schemas"]["KeyUsageAgainstLimits"][];
            tenant: components["schemas"]["TenantUsageAgainstLimits"];
        };
        UsagePart: {
            cached_prompt_tokens: number;
            completion_tokens: number;
            /** @description Millionths of the currency, without storage. */
            cost_micros: number;
            /** @description Share of the devices' time, in microseconds. */
            device_us: number;
            /** @description Null = the base model, or members in the console. */
            name: string | null;
            /** @description Of a key. */
            prefix?: string | null;
            prompt_tokens: number;
            requests: number;
        };
        UsageReport: {
            /**
             * Format: date-time
             * @description Everything stored until then is in these sums.
             */
            as_of: string | null;
            by_adapter: components["schemas"]["AdapterUsage"][];
            by_base_model: components["schemas"]["BaseModelUsage"][];
            by_day: components["schemas"]["DayUsage"][];
            by_key: components["schemas"]["KeyUsage"][];
            /** @description Null = no prices: every cost is 0. */
            currency: string | null;
            days: number;
            latency: components["schemas"]["Latency"];
            totals: components["schemas"]["UsageTotals"];
        };
        UsageTotals: {
            cached_prompt_tokens: number;
            completion_tokens: number;
            /** @description Millionths of the currency, without storage. */
            cost_micros: number;
            /** @description Share of the devices' time, in microseconds. */
            device_us: number;
            prompt_tokens: number;
            requests: number;
        };
        ValidationCheck: {
            detail: string;
            name: string;
            ok: boolean;
        };
        /** @description An error that is stored with a resource: why an upload was refused, why a staging failed. */
        ValidationProblem: {
            code: string;
            fix: string;
            message: string;
            tensor: string | null;
        };
        /** @description The result of a validation. `problems` is capped; `problem_count` is not. */
        ValidationReport: {
            checks: components["schemas"]["ValidationCheck"][];
            manifest: components["schemas"]["AdapterManifest"] | null;
            notes: string[];
            ok: boolean;
            problem_count: number;
            problems: components["schemas"]["ValidationProblem"][];
        };
        /**
         * @description * `acts` - Acts
         *     * `changes_nothing` - Changes Nothing
         *     * `overflows` - Overflows
         * @enum {string}
         */
        VerdictEnum: "acts" | "changes_nothing" | "overflows";
        Version: {
            adapter: string;
            /**
             * @description On hosts with adapters in FP8: auto (FP8 where it agrees), bf16 (never FP8) or fp8 (in any case).
             *
             *     * `auto` - Auto
             *     * `bf16` - Bf16
             *     * `fp8` - Fp8
             */
            adapter_dtype: components["schemas"]["AdapterDtypeEnum"];
            /**
             * @description With the unquantised base; null until a host has tried it, and where the base is not quantised.
             *
             *     * `pending` - Pending
             *     * `agrees` - Agrees
             *     * `differs` - Differs
             *     * `not_measured` - Not Measured
             */
            agreement: (components["schemas"]["AgreementOutcome"] | components["schemas"]["NullEnum"]) | null;
            readonly aliases: string[];
            /** @description Whether that has to be confirmed before it can be live. */
            asks_for_base: boolean;
            /** @description Whether somebody has to say that it may be live as it is: it changes nothing, overflows, or differs on the quantised base. */
            asks_for_effect: boolean;
            base_model: string;
            bytes: number;
            /** @description Its own; null: the base model's. */
            chat_template: components["schemas"]["ChatTemplate"] | null;
            /** Format: date-time */
            created_at: string;
            created_by?: string | null;
            digest: string;
            dtype: string;
            effect: components["schemas"]["VersionEffect"] | null;
            error: components["schemas"]["Problem"] | null;
            /** @description The last score of each evaluation set. */
            evaluations: components["schemas"]["Score"][];
            /**
             * Format: date-time
             * @description An archived version can be restored until then.
             */
            readonly kept_until: string | null;
            /** @description The base that the adapter names, if that is another one than was served. */
            named_base: string;
            num_parameters: number;
            number: number;
            /**
             * Format: date-time
             * @description When a request first ended with adapter_overflow: its weights are too large.
             */
            overflowed_at: string | null;
            placements: components["schemas"]["Placement"][];
            rank: number;
            report: components["schemas"]["ValidationReport"];
            state: components["schemas"]["VersionState"];
            targets: string[];
            /**
             * @description Whether it acts; null until a host has tried it.
             *
             *     * `acts` - Acts
             *     * `changes_nothing` - Changes Nothing
             *     * `overflows` - Overflows
             */
            verdict: (components["schemas"]["VerdictEnum"] | components["schemas"]["NullEnum"]) | null;
        };
        /** @description The effect of a version on a few prompts when the first host tried it, before it was ready. */
        VersionEffect: {
            /** @description With the unquantised base; null where the host's base is not quantised. */
            agreement: components["schemas"]["Agreement"] | null;
            /** Format: date-time */
            at: string;
            /** @description How many of them are not the base model's. */
            differing_tokens: number;
            elapsed_ms: number;
            host: string;
            /**
             * Format: double
             * @description Of a log-probability, on all prompts.
             */
            largest_change: number;
            /** @description Of each layer: the norm of what the version adds to its matrices, by the norm of those. */
            layer_changes: number[];
            prompts: components["schemas"]["ProbedPrompt"][];
            /** @description How many were generated with the version. */
            tokens: number;
            verdict: components["schemas"]["VerdictEnum"];
        };
        /**
         * @description * `validated` - Validated
         *     * `staging` - Staging
         *     * `ready` - Ready
         *     * `failed` - Failed
         *     * `archived` - Archived
         *     * `deleted` - Deleted
         * @enum {string}
         */
        VersionState: "validated" | "staging" | "ready" | "failed" | "archived" | "deleted";
        /** @description A version's requests since the canary began; times are medians without the adapter's load. */
        VersionStats: {
            failed: number;
            /** Format: double */
            first_token_ms: number | null;
            /** Format: double */
            inter_token_ms: number | null;
            requests: number;
        };
        VersionSummary: {
            /**
             * @description On hosts with adapters in FP8: auto (FP8 where it agrees), bf16 (never FP8) or fp8 (in any case).
             *
             *     * `auto` - Auto
             *     * `bf16` - Bf16
             *     * `fp8` - Fp8
             */
            adapter_dtype: components["schemas"]["AdapterDtypeEnum"];
            /**
             * @description With the unquantised base; null until a host has tried it, and where the base is not quantised.
             *
             *     * `pending` - Pending
             *     * `agrees` - Agrees
             *     * `differs` - Differs
             *     * `not_measured` - Not Measured
             */
            agreement: (components["schemas"]["AgreementOutcome"] | components["schemas"]["NullEnum"]) | null;
            /** @description Whether that has to be confirmed before it can be live. */
            asks_for_base: boolean;
            /** @description Whether somebody has to say that it may be live as it is: it changes nothing, overflows, or differs on the quantised base. */
            asks_for_effect: boolean;
            base_model: string;
            bytes: number;
            /** Format: date-time */
            created_at: string;
            created_by?: string | null;
            digest: string;
            dtype: string;
            error: components["schemas"]["Problem"] | null;
            /**
             * Format: date-time
             * @description An archived version can be restored until then.
             */
            readonly kept_until: string | null;
            /** @description The base that the adapter names, if that is another one than was served. */
            named_base: string;
            num_parameters: number;
            number: number;
            /**
             * Format: date-time
             * @description When a request first ended with adapter_overflow: its weights are too large.
             */
            overflowed_at: string | null;
            rank: number;
            state: components["schemas"]["VersionState"];
            targets: string[];
            /**
             * @description Whether it acts; null until a host has tried it.
             *
             *     * `acts` - Acts
             *     * `changes_nothing` - Changes Nothing
             *     * `overflows` - Overflows
             */
            verdict: (components["schemas"]["VerdictEnum"] | components["schemas"]["NullEnum"]) | null;
        };
        /** @description The tier of a version on a host, and how long a request would wait for it there. */
        VersionTier: {
            by_tier: components["schemas"]["ColdStarts"];
            /**
             * Format: double
             * @description From where it is now.
             */
            cold_start_ms: number | null;
            host: string;
            /**
             * @description `store`: the host has no copy.
             *
             *     * `device` - device
             *     * `host` - host
             *     * `disk` - disk
             *     * `store` - store
             */
            tier: components["schemas"]["AdapterPlace"];
        };
        WantedService: {
            service: components["schemas"]["HostService"];
        };
        WantedServiceRequest: {
            service: components["schemas"]["HostService"];
        };
        Webhook: {
            /** @default true */
            active: boolean;
            /** Format: date-time */
            created_at: string;
            created_by?: string | null;
            /** @default  */
            description: string;
            /** @description Which types to send; empty = all. */
            events?: components["schemas"]["EventType"][];
            /** @description In a row. */
            failures: number;
            /** Format: uuid */
            id: string;
            /**
             * Format: date-time
             * @description After failures nothing is sent until then.
             */
            rests_until: string | null;
            /** @description https only, at a public address. */
            url: string;
        };
        WebhookSettingsRequest: {
            /** @description By default true. */
            active?: boolean;
            description?: string;
            /** @description Which types to send; empty = all. */
            events?: components["schemas"]["EventType"][];
            /** @description https only, at a public address. */
            url: string;
        };
        WebhookWithSecret: {
            /** @default true */
            active: boolean;
            /** Format: date-time */
            created_at: string;
            created_by?: string | null;
            /** @default  */
            description: string;
            /** @description Which types to send; empty = all. */
            events?: components["schemas"]["EventType"][];
            /** @description In a row. */
            failures: number;
            /** Format: uuid */
            id: string;
            /**
             * Format: date-time
             * @description After failures nothing is sent until then.
             */
            rests_until: string | null;
            /** @description Signs the messages. It is shown this once. */
            secret: string;
            /** @description https only, at a public address. */
            url: string;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    join_fleet: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["JoinRequest"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Joined"];
                };
            };
        };
    };
    accept_invitation: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AcceptInvitationRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Session"];
                };
            };
        };
    };
    read_invitation: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["InvitationTokenRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["InvitationDetails"];
                };
            };
        };
    };
    list_operator_audit: {
        parameters: {
            query?: {
                /** @description "key.create", or "key" for all of that noun. */
                action?: string;
                /** @description Part of who did it. */
                actor?: string;
                before?: number;
                /** @description Then or later. */
                since?: string;
                size?: number;
                /** @description Part of the subject's name, or its id. */
                target?: string;
                /** @description A tenant's short name; "-" for what belongs to none. */
                tenant?: string;
                /** @description Before it. */
                until?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AuditPage"];
                };
            };
        };
    };
    read_operator_audit_csv: {
        parameters: {
            query?: {
                /** @description "key.create", or "key" for all of that noun. */
                action?: string;
                /** @description Part of who did it. */
                actor?: string;
                /** @description Then or later. */
                since?: string;
                /** @description Part of the subject's name, or its id. */
                target?: string;
                /** @description A tenant's short name; "-" for what belongs to none. */
                tenant?: string;
                /** @description Before it. */
                until?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/csv": string;
                };
            };
        };
    };
    read_base_model: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BaseModel"];
                };
            };
        };
    };
    set_base_model: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewBaseModelRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BaseModel"];
                };
            };
        };
    };
    list_base_models: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ListedBaseModel"][];
                };
            };
        };
    };
    approve_base_model: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ApprovedBaseModelRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BaseModel"];
                };
            };
        };
    };
    withdraw_base_model: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                digest: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    change_base_model: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                digest: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["PatchedBaseModelChangeRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BaseModel"];
                };
            };
        };
    };
    read_fairness: {
        parameters: {
            query?: {
                /**
                 * @description Without `since`: so long before `until`.
                 *
                 *     * `15m` - 15m
                 *     * `1h` - 1h
                 *     * `3h` - 3h
                 *     * `6h` - 6h
                 *     * `12h` - 12h
                 *     * `1d` - 1d
                 *     * `2d` - 2d
                 *     * `7d` - 7d
                 *     * `30d` - 30d
                 *     * `90d` - 90d
                 */
                range?: "15m" | "1h" | "3h" | "6h" | "12h" | "1d" | "2d" | "7d" | "30d" | "90d";
                /** @description What happened then or later is counted, by the minute: see `until`. */
                since?: string;
                /** @description Seconds; fitting, if left out. */
                step?: number;
                /** @description Only what happened before it is counted: windows that follow each other add up. Both ends move back to the minute that they are in, or the hour if they are more than two days ago; the answer has both. They need not be where a step begins. Left out: now, to the end of the present step. */
                until?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Fairness"];
                };
            };
        };
    };
    list_all_hosts: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OperatorHost"][];
                };
            };
        };
    };
    forget_host: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                host_name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    revoke_host: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                host_name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    read_all_host_pages: {
        parameters: {
            query?: {
                /** @description Show what was kept so many seconds ago. */
                ago_s?: number;
            };
            header?: never;
            path: {
                host_name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HostPages"];
                };
            };
        };
    };
    restart_host: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                host_name: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["RestartRequest"];
            };
        };
        responses: {
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Restart"];
                };
            };
        };
    };
    set_host_service: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                host_name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["WantedServiceRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WantedService"];
                };
            };
        };
    };
    list_join_tokens: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JoinToken"][];
                };
            };
        };
    };
    create_join_token: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["NewJoinTokenRequest"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CreatedJoinToken"];
                };
            };
        };
    };
    withdraw_join_token: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                token_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    list_operator_prices: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PriceVersion"][];
                };
            };
        };
    };
    publish_prices: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewPricesRequest"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PriceVersion"];
                };
            };
        };
    };
    end_base_prices: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["EndPricesRequest"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PriceVersion"];
                };
            };
        };
    };
    read_operator_refusal_series: {
        parameters: {
            query?: {
                /**
                 * @description Without `since`: so long before `until`.
                 *
                 *     * `15m` - 15m
                 *     * `1h` - 1h
                 *     * `3h` - 3h
                 *     * `6h` - 6h
                 *     * `12h` - 12h
                 *     * `1d` - 1d
                 *     * `2d` - 2d
                 *     * `7d` - 7d
                 *     * `30d` - 30d
                 *     * `90d` - 90d
                 */
                range?: "15m" | "1h" | "3h" | "6h" | "12h" | "1d" | "2d" | "7d" | "30d" | "90d";
                /** @description What happened then or later is counted, by the minute: see `until`. */
                since?: string;
                /** @description Seconds; fitting, if left out. */
                step?: number;
                /** @description Its slug; left out: all. */
                tenant?: string;
                /** @description Only what happened before it is counted: windows that follow each other add up. Both ends move back to the minute that they are in, or the hour if they are more than two days ago; the answer has both. They need not be where a step begins. Left out: now, to the end of the present step. */
                until?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RefusalSeries"];
                };
            };
        };
    };
    read_operator_report: {
        parameters: {
            query?: {
                /** @description Only what ran on this one, by its name now; one that was withdrawn too. */
                base_model?: string;
                days?: number;
                /** @description With `to`, instead of `days`. */
                from?: string;
                to?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OperatorReport"];
                };
            };
        };
    };
    read_operator_series: {
        parameters: {
            query?: {
                /** @description Only what ran on this one, by its name now; one that was withdrawn too. */
                base_model?: string;
                /** @description Its name, whole. */
                host?: string;
                /**
                 * @description Without `since`: so long before `until`.
                 *
                 *     * `15m` - 15m
                 *     * `1h` - 1h
                 *     * `3h` - 3h
                 *     * `6h` - 6h
                 *     * `12h` - 12h
                 *     * `1d` - 1d
                 *     * `2d` - 2d
                 *     * `7d` - 7d
                 *     * `30d` - 30d
                 *     * `90d` - 90d
                 */
                range?: "15m" | "1h" | "3h" | "6h" | "12h" | "1d" | "2d" | "7d" | "30d" | "90d";
                /** @description What happened then or later is counted, by the minute: see `until`. */
                since?: string;
                /** @description Seconds; fitting, if left out. */
                step?: number;
                /** @description Its slug. */
                tenant?: string;
                /** @description Only what happened before it is counted: windows that follow each other add up. Both ends move back to the minute that they are in, or the hour if they are more than two days ago; the answer has both. They need not be where a step begins. Left out: now, to the end of the present step. */
                until?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SeriesReport"];
                };
            };
        };
    };
    list_staging: {
        parameters: {
            query?: {
                host?: string;
                limit?: number;
                offset?: number;
                /**
                 * @description Left out: not ready.
                 *
                 *     * `queued` - Queued
                 *     * `downloading` - Downloading
                 *     * `verifying` - Verifying
                 *     * `loading` - Loading
                 *     * `ready` - Ready
                 *     * `failed` - Failed
                 */
                phase?: "queued" | "downloading" | "verifying" | "loading" | "ready" | "failed" | "";
                search?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StagingPage"];
                };
            };
        };
    };
    retry_staging: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                placement_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    list_tenants: {
        parameters: {
            query?: {
                limit?: number;
                offset?: number;
                search?: string;
                /**
                 * @description * `name` - name
                 *     * `-name` - -name
                 *     * `created_at` - created_at
                 *     * `-created_at` - -created_at
                 *     * `weight` - weight
                 *     * `-weight` - -weight
                 *     * `requests` - requests
                 *     * `-requests` - -requests
                 */
                sort?: "name" | "-name" | "created_at" | "-created_at" | "weight" | "-weight" | "requests" | "-requests";
                /**
                 * @description Left out: all that are not deleted.
                 *
                 *     * `active` - active
                 *     * `suspended` - suspended
                 *     * `deleted` - deleted
                 */
                state?: "active" | "suspended" | "deleted" | "";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TenantPage"];
                };
            };
        };
    };
    create_tenant: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewTenantRequest"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CreatedTenant"];
                };
            };
        };
    };
    read_tenant_statement: {
        parameters: {
            query?: {
                /** @description Like 2026-05; by default the present month (UTC). */
                month?: string;
            };
            header?: never;
            path: {
                slug: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Statement"];
                };
            };
        };
    };
    read_tenant: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TenantDetail"];
                };
            };
        };
    };
    delete_tenant: {
        parameters: {
            query?: {
                /** @description The tenant's short name. */
                confirm?: string;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Tenant"];
                };
            };
        };
    };
    rename_tenant: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["PatchedTenantNameRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Tenant"];
                };
            };
        };
    };
    list_tenant_adapters: {
        parameters: {
            query?: {
                limit?: number;
                offset?: number;
                search?: string;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TenantAdapterPage"];
                };
            };
        };
    };
    read_granted_budgets: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BudgetReport"];
                };
            };
        };
    };
    grant_budgets: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["BudgetsRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BudgetReport"];
                };
            };
        };
    };
    invite_to_tenant: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["OwnerInvitationRequest"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CreatedInvitation"];
                };
            };
        };
    };
    read_tenant_limits: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TenantLimits"];
                };
            };
        };
    };
    set_tenant_limits: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["TenantLimitsRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TenantLimits"];
                };
            };
        };
    };
    list_tenant_members: {
        parameters: {
            query?: {
                limit?: number;
                offset?: number;
                search?: string;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TenantMemberPage"];
                };
            };
        };
    };
    reset_second_factor: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
                user_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    set_tenant_objectives: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["LatencyObjectivesRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LatencyObjectives"];
                };
            };
        };
    };
    suspend_tenant: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SuspensionRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Tenant"];
                };
            };
        };
    };
    resume_tenant: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Tenant"];
                };
            };
        };
    };
    set_tenant_weight: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TenantWeightRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TenantWeight"];
                };
            };
        };
    };
    read_operator_csv: {
        parameters: {
            query?: {
                /** @description Only what ran on this one, by its name now; one that was withdrawn too. */
                base_model?: string;
                days?: number;
                /** @description With `to`, instead of `days`. */
                from?: string;
                grain?: "day" | "hour";
                to?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/csv": string;
                };
            };
        };
    };
    change_password: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ChangePasswordRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Session"];
                };
            };
        };
    };
    forgot_password: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ForgotPasswordRequest"];
            };
        };
        responses: {
            /** @description No response body */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    reset_password: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ResetPasswordRequest"];
            };
        };
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    change_name: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ProfileRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Session"];
                };
            };
        };
    };
    read_second_factors: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SecondFactors"];
                };
            };
        };
    };
    set_up_authenticator_app: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AppSetup"];
                };
            };
        };
    };
    remove_authenticator_app: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    confirm_authenticator_app: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CodeRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RecoveryCodes"];
                };
            };
        };
    };
    add_passkey: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewPasskeyRequest"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AddedPasskey"];
                };
            };
        };
    };
    remove_passkey: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                passkey_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    begin_passkey: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    };
                };
            };
        };
    };
    replace_recovery_codes: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RecoveryCodes"];
                };
            };
        };
    };
    read_session: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Session"];
                };
            };
        };
    };
    log_in: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["LoginRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Session"];
                };
            };
        };
    };
    log_out: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Session"];
                };
            };
        };
    };
    read_confirmation_methods: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Methods"];
                };
            };
        };
    };
    confirm_identity: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["IdentityConfirmationRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Session"];
                };
            };
        };
    };
    request_passkey: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    };
                };
            };
        };
    };
    read_second_factor_methods: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Methods"];
                };
            };
        };
    };
    log_in_with_second_factor: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["SecondFactorRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Session"];
                };
            };
        };
    };
    list_sessions: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Device"][];
                };
            };
        };
    };
    end_other_sessions: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    end_session: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    list_adapters: {
        parameters: {
            query?: {
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /** @description A part of the name. */
                search?: string;
                /**
                 * @description * `name` - name
                 *     * `-name` - -name
                 *     * `rank` - rank
                 *     * `-rank` - -rank
                 *     * `bytes` - bytes
                 *     * `-bytes` - -bytes
                 *     * `created_at` - created_at
                 *     * `-created_at` - -created_at
                 */
                sort?: "name" | "-name" | "rank" | "-rank" | "bytes" | "-bytes" | "created_at" | "-created_at";
                /**
                 * @description Of the live version, else of the newest; staging: validated ones too.
                 *
                 *     * `empty` - Empty
                 *     * `validated` - Validated
                 *     * `staging` - Staging
                 *     * `ready` - Ready
                 *     * `failed` - Failed
                 *     * `archived` - Archived
                 */
                status?: "empty" | "validated" | "staging" | "ready" | "failed" | "archived" | "";
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    /** @description How many there are with this `search`. */
                    "X-Total-Count"?: number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AdapterSummary"][];
                };
            };
        };
    };
    read_adapter: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Adapter"];
                };
            };
        };
    };
    archive_adapter: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    set_alias: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                alias: string;
                name: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AliasTargetRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Adapter"];
                };
            };
        };
    };
    remove_alias: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                alias: string;
                name: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    read_canary: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                alias: string;
                name: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CanaryComparison"];
                };
            };
        };
    };
    set_canary: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                alias: string;
                name: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CanaryTargetRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Adapter"];
                };
            };
        };
    };
    stop_canary: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                alias: string;
                name: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    roll_back_alias: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                alias: string;
                name: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Adapter"];
                };
            };
        };
    };
    read_pin: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Pin"];
                };
            };
        };
    };
    pin_adapter: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Pin"];
                };
            };
        };
    };
    unpin_adapter: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    set_promotion_rule: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewPromotionRuleRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Adapter"];
                };
            };
        };
    };
    remove_promotion_rule: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    read_version: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
                number: number;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Version"];
                };
            };
        };
    };
    delete_version: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
                number: number;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    archive_version: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
                number: number;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Version"];
                };
            };
        };
    };
    confirm_base: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
                number: number;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Version"];
                };
            };
        };
    };
    confirm_effect: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
                number: number;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Version"];
                };
            };
        };
    };
    set_adapter_dtype: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
                number: number;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AdapterDtypeRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Version"];
                };
            };
        };
    };
    promote_version: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
                number: number;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Version"];
                };
            };
        };
    };
    restage_version: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
                number: number;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Version"];
                };
            };
        };
    };
    restore_version: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
                number: number;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Version"];
                };
            };
        };
    };
    read_version_tiers: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
                number: number;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VersionTier"][];
                };
            };
        };
    };
    read_api_settings: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiSettings"];
                };
            };
        };
    };
    set_api_settings: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ApiSettingsRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiSettings"];
                };
            };
        };
    };
    list_archived_adapters: {
        parameters: {
            query?: {
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /** @description A part of the name. */
                search?: string;
                /**
                 * @description * `name` - name
                 *     * `-name` - -name
                 *     * `archived_at` - archived_at
                 *     * `-archived_at` - -archived_at
                 */
                sort?: "name" | "-name" | "archived_at" | "-archived_at";
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    /** @description How many there are with this `search`. */
                    "X-Total-Count"?: number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ArchivedAdapter"][];
                };
            };
        };
    };
    delete_archived_adapter: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                adapter_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    restore_adapter: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                adapter_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Adapter"];
                };
            };
        };
    };
    list_audit: {
        parameters: {
            query?: {
                /** @description "key.create", or "key" for all of that noun. */
                action?: string;
                /** @description Part of who did it. */
                actor?: string;
                before?: number;
                /** @description Then or later. */
                since?: string;
                size?: number;
                /** @description Part of the subject's name, or its id. */
                target?: string;
                /** @description Before it. */
                until?: string;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AuditPage"];
                };
            };
        };
    };
    read_audit_csv: {
        parameters: {
            query?: {
                /** @description "key.create", or "key" for all of that noun. */
                action?: string;
                /** @description Part of who did it. */
                actor?: string;
                /** @description Then or later. */
                since?: string;
                /** @description Part of the subject's name, or its id. */
                target?: string;
                /** @description Before it. */
                until?: string;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/csv": string;
                };
            };
        };
    };
    list_tenant_batches: {
        parameters: {
            query?: {
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /** @description A part of the name. */
                search?: string;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    /** @description How many there are with this `search`. */
                    "X-Total-Count"?: number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Batch"][];
                };
            };
        };
    };
    create_tenant_batch: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "multipart/form-data": components["schemas"]["NewBatchRequest"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Batch"];
                };
            };
        };
    };
    read_tenant_batch: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                batch_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Batch"];
                };
            };
        };
    };
    cancel_tenant_batch: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                batch_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Batch"];
                };
            };
        };
    };
    list_batch_errors: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                batch_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LineError"][];
                };
            };
        };
    };
    list_bucket_credentials: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BucketCredentials"][];
                };
            };
        };
    };
    set_bucket_credentials: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["BucketCredentialsRequest"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BucketCredentials"];
                };
            };
        };
    };
    remove_bucket_credentials: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                bucket: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    read_budgets: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BudgetReport"];
                };
            };
        };
    };
    set_budgets: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["BudgetsRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BudgetReport"];
                };
            };
        };
    };
    list_evaluation_sets: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EvaluationSet"][];
                };
            };
        };
    };
    create_evaluation_set: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "multipart/form-data": components["schemas"]["NewEvaluationSetRequest"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EvaluationSet"];
                };
            };
        };
    };
    read_evaluation_set: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                set_name: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EvaluationSet"];
                };
            };
        };
    };
    delete_evaluation_set: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                set_name: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    list_evaluations: {
        parameters: {
            query?: {
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /** @description A part of the name. */
                search?: string;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    /** @description How many there are with this `search`. */
                    "X-Total-Count"?: number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Evaluation"][];
                };
            };
        };
    };
    start_evaluation: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewEvaluationRequest"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Evaluation"];
                };
            };
        };
    };
    read_evaluation: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                evaluation_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Evaluation"];
                };
            };
        };
    };
    cancel_evaluation: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                evaluation_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    list_export_schedules: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ExportSchedule"][];
                };
            };
        };
    };
    add_export_schedule: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewExportScheduleRequest"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ExportSchedule"];
                };
            };
        };
    };
    delete_export_schedule: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                schedule_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    list_exports: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Export"][];
                };
            };
        };
    };
    request_export: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["NewExportRequest"];
            };
        };
        responses: {
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Export"];
                };
            };
        };
    };
    read_export: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                export_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Export"];
                };
            };
        };
    };
    download_export: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                export_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/gzip": string;
                };
            };
        };
    };
    list_tenant_files: {
        parameters: {
            query?: {
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /** @description A part of the name. */
                search?: string;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    /** @description How many there are with this `search`. */
                    "X-Total-Count"?: number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StoredFile"][];
                };
            };
        };
    };
    delete_tenant_file: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                file_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    download_file: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                file_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": string;
                };
            };
        };
    };
    list_follows: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HubFollow"][];
                };
            };
        };
    };
    add_follow: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["HubFollowRequest"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HubFollow"];
                };
            };
        };
    };
    remove_follow: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                follow_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    list_hosts: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Host"][];
                };
            };
        };
    };
    read_host_pages: {
        parameters: {
            query?: {
                /** @description Show what was kept so many seconds ago. */
                ago_s?: number;
            };
            header?: never;
            path: {
                host_name: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HostPages"];
                };
            };
        };
    };
    read_hub_models: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HubModels"];
                };
            };
        };
    };
    set_hub_models: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["HubModelsRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HubModels"];
                };
            };
        };
    };
    read_hub_token: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HubToken"];
                };
            };
        };
    };
    set_hub_token: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["HubTokenRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HubToken"];
                };
            };
        };
    };
    remove_hub_token: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    create_import: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewImportRequest"];
            };
        };
        responses: {
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Upload"];
                };
            };
        };
    };
    list_invitations: {
        parameters: {
            query?: {
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /** @description A part of the name. */
                search?: string;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    /** @description How many there are with this `search`. */
                    "X-Total-Count"?: number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Invitation"][];
                };
            };
        };
    };
    invite: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewInvitationRequest"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CreatedInvitation"];
                };
            };
        };
    };
    revoke_invitation: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                invitation_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    list_keys: {
        parameters: {
            query?: {
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /**
                 * @description Only keys with this scope.
                 *
                 *     * `adapters.write` - adapters.write
                 *     * `infer` - infer
                 *     * `view` - view
                 */
                scope?: "adapters.write" | "infer" | "view" | "";
                /** @description A part of the name. */
                search?: string;
                /**
                 * @description * `name` - name
                 *     * `-name` - -name
                 *     * `created_at` - created_at
                 *     * `-created_at` - -created_at
                 *     * `last_used_at` - last_used_at
                 *     * `-last_used_at` - -last_used_at
                 *     * `expires_at` - expires_at
                 *     * `-expires_at` - -expires_at
                 */
                sort?: "name" | "-name" | "created_at" | "-created_at" | "last_used_at" | "-last_used_at" | "expires_at" | "-expires_at";
                /**
                 * @description `usable` keys are neither revoked nor expired. Left out: all.
                 *
                 *     * `usable` - usable
                 *     * `not_revoked` - not_revoked
                 *     * `revoked` - revoked
                 */
                state?: "usable" | "not_revoked" | "revoked" | "";
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    /** @description How many there are with this `search`. */
                    "X-Total-Count"?: number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiKey"][];
                };
            };
        };
    };
    create_key: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewApiKeyRequest"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CreatedApiKey"];
                };
            };
        };
    };
    revoke_key: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                key_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    change_key: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                key_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["PatchedChangeApiKeyRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiKey"];
                };
            };
        };
    };
    read_key_budgets: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                key_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BudgetStates"];
                };
            };
        };
    };
    set_key_budgets: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                key_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["BudgetsRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BudgetReport"];
                };
            };
        };
    };
    set_key_limits: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                key_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["KeyLimitsRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyLimits"];
                };
            };
        };
    };
    rotate_key: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                key_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["RotateApiKeyRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CreatedApiKey"];
                };
            };
        };
    };
    read_limits: {
        parameters: {
            query?: {
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /** @description A part of the name. */
                search?: string;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    /** @description How many there are with this `search`. */
                    "X-Total-Count"?: number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["UsageAgainstLimits"];
                };
            };
        };
    };
    list_members: {
        parameters: {
            query?: {
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /** @description A part of the name. */
                search?: string;
                /**
                 * @description By role: who may do most comes first.
                 *
                 *     * `email` - email
                 *     * `-email` - -email
                 *     * `role` - role
                 *     * `-role` - -role
                 *     * `joined_at` - joined_at
                 *     * `-joined_at` - -joined_at
                 */
                sort?: "email" | "-email" | "role" | "-role" | "joined_at" | "-joined_at";
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    /** @description How many there are with this `search`. */
                    "X-Total-Count"?: number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Member"][];
                };
            };
        };
    };
    remove_member: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
                user_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    change_role: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
                user_id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["PatchedNewRoleRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Member"];
                };
            };
        };
    };
    leave_tenant: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    list_models: {
        parameters: {
            query?: {
                /** @description Left out: all. */
                limit?: number;
                offset?: number;
                /** @description A part of the name. */
                search?: string;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    /** @description How many there are with this `search`. */
                    "X-Total-Count"?: number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Model"][];
                };
            };
        };
    };
    read_allowed_origins: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AllowedOrigins"];
                };
            };
        };
    };
    set_allowed_origins: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AllowedOriginsRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AllowedOrigins"];
                };
            };
        };
    };
    read_overview: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Overview"];
                };
            };
        };
    };
    pin_prefix: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewPrefixRequest"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Prefix"];
                };
            };
        };
    };
    read_pinned_prefix: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                prefix_name: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PrefixText"];
                };
            };
        };
    };
    unpin_prefix: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                prefix_name: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    list_pins: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TenantPins"];
                };
            };
        };
    };
    list_prices: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PriceVersion"][];
                };
            };
        };
    };
    read_recording: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Recording"];
                };
            };
        };
    };
    set_recording: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RecordingRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Recording"];
                };
            };
        };
    };
    list_refusals: {
        parameters: {
            query?: {
                cursor?: string;
                limit?: number;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RefusalPage"];
                };
            };
        };
    };
    read_refusal_series: {
        parameters: {
            query?: {
                /**
                 * @description Without `since`: so long before `until`.
                 *
                 *     * `15m` - 15m
                 *     * `1h` - 1h
                 *     * `3h` - 3h
                 *     * `6h` - 6h
                 *     * `12h` - 12h
                 *     * `1d` - 1d
                 *     * `2d` - 2d
                 *     * `7d` - 7d
                 *     * `30d` - 30d
                 *     * `90d` - 90d
                 */
                range?: "15m" | "1h" | "3h" | "6h" | "12h" | "1d" | "2d" | "7d" | "30d" | "90d";
                /** @description What happened then or later is counted, by the minute: see `until`. */
                since?: string;
                /** @description Seconds; fitting, if left out. */
                step?: number;
                /** @description Only what happened before it is counted: windows that follow each other add up. Both ends move back to the minute that they are in, or the hour if they are more than two days ago; the answer has both. They need not be where a step begins. Left out: now, to the end of the present step. */
                until?: string;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RefusalSeries"];
                };
            };
        };
    };
    list_requests: {
        parameters: {
            query?: {
                /** @description Its name, whole. */
                adapter?: string;
                /** @description Part of its name. */
                adapter_contains?: string;
                /** @description On which it ran, by its name now. */
                base_model?: string;
                cursor?: string;
                /** @description An error's code. */
                error?: string;
                /** @description Its name, whole. */
                host?: string;
                /** @description Of the request, whole. */
                id?: string;
                /** @description An API key's id, or "console". */
                key?: string;
                limit?: number;
                /** @description So did the first token. */
                min_first_token_ms?: number;
                /** @description All phases together took at least so many milliseconds. */
                min_ms?: number;
                /** @description Prompt and output together. */
                min_tokens?: number;
                /** @description Part of the model as the client wrote it. */
                model?: string;
                /**
                 * @description * `finished` - Finished
                 *     * `aborted` - Aborted
                 *     * `failed` - Failed
                 *     * `refused` - Refused
                 */
                outcome?: "finished" | "aborted" | "failed" | "refused" | "";
                /** @description Then or later. */
                since?: string;
                /** @description Before it. */
                until?: string;
                /** @description Of the adapter. */
                version?: number;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RequestPage"];
                };
            };
        };
    };
    read_transcript: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                request_id: string;
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Transcript"];
                };
            };
        };
    };
    read_tenant_security: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Security"];
                };
            };
        };
    };
    set_tenant_security: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RequirementRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Security"];
                };
            };
        };
    };
    read_series: {
        parameters: {
            query?: {
                /** @description Its name, whole: its versions side by side. */
                adapter?: string;
                /** @description Only what ran on this one, by its name now; one that was withdrawn too. */
                base_model?: string;
                /** @description Its name, whole. */
                host?: string;
                /**
                 * @description Without `since`: so long before `until`.
                 *
                 *     * `15m` - 15m
                 *     * `1h` - 1h
                 *     * `3h` - 3h
                 *     * `6h` - 6h
                 *     * `12h` - 12h
                 *     * `1d` - 1d
                 *     * `2d` - 2d
                 *     * `7d` - 7d
                 *     * `30d` - 30d
                 *     * `90d` - 90d
                 */
                range?: "15m" | "1h" | "3h" | "6h" | "12h" | "1d" | "2d" | "7d" | "30d" | "90d";
                /** @description What happened then or later is counted, by the minute: see `until`. */
                since?: string;
                /** @description Seconds; fitting, if left out. */
                step?: number;
                /** @description Only what happened before it is counted: windows that follow each other add up. Both ends move back to the minute that they are in, or the hour if they are more than two days ago; the answer has both. They need not be where a step begins. Left out: now, to the end of the present step. */
                until?: string;
                /** @description Of the adapter. */
                version?: number;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SeriesReport"];
                };
            };
        };
    };
    list_usage_parts: {
        parameters: {
            query: {
                /** @description Only what ran on this one, by its name now; one that was withdrawn too. */
                base_model?: string;
                /**
                 * @description * `adapter` - adapter
                 *     * `key` - key
                 */
                by: "adapter" | "key";
                limit?: number;
                offset?: number;
                /**
                 * @description Without `since`: so long before `until`.
                 *
                 *     * `15m` - 15m
                 *     * `1h` - 1h
                 *     * `3h` - 3h
                 *     * `6h` - 6h
                 *     * `12h` - 12h
                 *     * `1d` - 1d
                 *     * `2d` - 2d
                 *     * `7d` - 7d
                 *     * `30d` - 30d
                 *     * `90d` - 90d
                 */
                range?: "15m" | "1h" | "3h" | "6h" | "12h" | "1d" | "2d" | "7d" | "30d" | "90d";
                /** @description A part of the name, or of a key's prefix. */
                search?: string;
                /** @description What happened then or later is counted, by the minute: see `until`. */
                since?: string;
                /**
                 * @description The largest come first.
                 *
                 *     * `requests` - Requests
                 *     * `tokens` - Tokens
                 *     * `device_us` - Device Time
                 */
                sort?: "requests" | "tokens" | "device_us";
                /** @description Seconds; fitting, if left out. */
                step?: number;
                /** @description Only what happened before it is counted: windows that follow each other add up. Both ends move back to the minute that they are in, or the hour if they are more than two days ago; the answer has both. They need not be where a step begins. Left out: now, to the end of the present step. */
                until?: string;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    /** @description How many there are with this `search`. */
                    "X-Total-Count"?: number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["UsagePart"][];
                };
            };
        };
    };
    read_slo: {
        parameters: {
            query?: {
                days?: number;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SloReport"];
                };
            };
        };
    };
    set_slo: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["LatencyObjectivesRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LatencyObjectives"];
                };
            };
        };
    };
    make_socket_ticket: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SocketTicket"];
                };
            };
        };
    };
    read_statement: {
        parameters: {
            query?: {
                /** @description Like 2026-05; by default the present month (UTC). */
                month?: string;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Statement"];
                };
            };
        };
    };
    read_storage: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Storage"];
                };
            };
        };
    };
    find_transcripts: {
        parameters: {
            query: {
                /** @description The id of a request. */
                request: string;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Transcript"][];
                };
            };
        };
    };
    delete_transcripts: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    list_uploads: {
        parameters: {
            query?: {
                limit?: number;
                offset?: number;
                /** @description A part of the name. */
                search?: string;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    /** @description How many there are with this `search`. */
                    "X-Total-Count"?: number;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Upload"][];
                };
            };
        };
    };
    create_upload: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "multipart/form-data": components["schemas"]["NewUploadRequest"];
            };
        };
        responses: {
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Upload"];
                };
            };
        };
    };
    read_upload: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
                upload_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Upload"];
                };
            };
        };
    };
    cancel_upload: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
                upload_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Upload"];
                };
            };
        };
    };
    read_usage: {
        parameters: {
            query?: {
                /** @description Only what ran on this one, by its name now; one that was withdrawn too. */
                base_model?: string;
                days?: number;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["UsageReport"];
                };
            };
        };
    };
    read_usage_csv: {
        parameters: {
            query?: {
                /** @description Only what ran on this one, by its name now; one that was withdrawn too. */
                base_model?: string;
                days?: number;
                /** @description With `to`, instead of `days`. */
                from?: string;
                grain?: "day" | "hour";
                to?: string;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/csv": string;
                };
            };
        };
    };
    list_webhooks: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Webhook"][];
                };
            };
        };
    };
    create_webhook: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["WebhookSettingsRequest"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WebhookWithSecret"];
                };
            };
        };
    };
    read_webhook: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
                webhook_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Webhook"];
                };
            };
        };
    };
    change_webhook: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
                webhook_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["WebhookSettingsRequest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Webhook"];
                };
            };
        };
    };
    delete_webhook: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
                webhook_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No response body */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    list_deliveries: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
                webhook_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Delivery"][];
                };
            };
        };
    };
    replay_delivery: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                delivery_id: string;
                tenant: string;
                webhook_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Delivery"];
                };
            };
        };
    };
    rotate_webhook_secret: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
                webhook_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WebhookWithSecret"];
                };
            };
        };
    };
    test_webhook: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
                webhook_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Delivery"];
                };
            };
        };
    };
    get_version: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ServerVersion"];
                };
            };
        };
    };
}
